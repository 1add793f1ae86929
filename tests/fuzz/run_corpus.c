/* run_corpus DIR: feeds every file of DIR to the fuzz target it is linked with, so that saved inputs run as ordinary
 * tests where no fuzzer is at hand. Exit 1 where the directory is missing or empty. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *e;
	int n = 0;

	if (!d) {
		fprintf(stderr, "usage: run_corpus DIR\n");
		return 1;
	}
	while ((e = readdir(d))) {
		struct stat st;
		int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 1;
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
			/* exactly the file's size, so that AddressSanitizer sees one byte too many */
			uint8_t *p = malloc(st.st_size ? (size_t)st.st_size : 1);
			if (!p || read(fd, p, (size_t)st.st_size) != st.st_size)
				return 1;
			LLVMFuzzerTestOneInput(p, (size_t)st.st_size);
			free(p);
			n++;
		}
		close(fd);
	}
	closedir(d);
	printf("%d inputs\n", n);
	return n ? 0 : 1;
}
