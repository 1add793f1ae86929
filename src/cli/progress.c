#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wait.h"

#define COLUMNS 79
#define WIPE "\r\033[K"
#define TICK_MS 500

static bool shown; /* a line of this process is on the terminal */

bool progress_wanted(void) { return isatty(STDERR_FILENO); }

/* Cuts text behind as many characters; a control character in a name must not move the cursor. */
static void clip(char *text)
{
	int columns = 0;
	char *p = text;

	for (; *p; p++) {
		if (((uint8_t)*p & 0xc0) != 0x80 && ++columns > COLUMNS)
			break;
		if ((uint8_t)*p < 0x20 || *p == 0x7f)
			*p = '?';
	}
	*p = 0;
}

__attribute__((format(printf, 2, 0))) static void put(struct buf *out, const char *fmt, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof text, fmt, ap);
	clip(text);
	buf_printf(out, WIPE "%s", text);
}

void progress_put(struct buf *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(out, fmt, ap);
	va_end(ap);
}

void progress_wipe(struct buf *out) { buf_printf(out, WIPE); }

void progress_show(const char *fmt, ...)
{
	struct buf line = {0};
	va_list ap;

	if (!progress_wanted())
		return;
	va_start(ap, fmt);
	put(&line, fmt, ap);
	va_end(ap);
	fwrite(line.p, 1, line.len, stderr);
	fflush(stderr);
	buf_fini(&line);
	shown = true;
}

void progress_end(void)
{
	if (shown)
		fputs(WIPE, stderr);
	shown = false;
}

const char *progress_left(uint64_t started_ns, double part, char ret[static PROGRESS_LEFT_MAX])
{
	double took = (double)(mono_ns() - started_ns) / 1e9, left = part > 0 ? took * (1 - part) / part : 0;

	*ret = 0;
	if (took < 0.3 || part < 0.005 || part > 1)
		return ret;
	if (left < 120)
		snprintf(ret, PROGRESS_LEFT_MAX, ", about %.0f s left", left);
	else if (left < 7200)
		snprintf(ret, PROGRESS_LEFT_MAX, ", about %.0f min left", left / 60);
	else
		snprintf(ret, PROGRESS_LEFT_MAX, ", about %.1f h left", left / 3600);
	return ret;
}

static void *wait_main(void *arg)
{
	struct progress_wait *w = arg;
	uint64_t start = mono_ns();

	pthread_mutex_lock(&w->lock);
	while (!w->done) {
		cond_wait_until(&w->wake, &w->lock, mono_ns_in(TICK_MS));
		if (!w->done && mono_ns() - start >= 1000000000u)
			progress_show("%s: %llu s", w->what, (unsigned long long)(mono_ns() - start) / 1000000000u);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void progress_wait_begin(struct progress_wait *w, const char *what)
{
	*w = (struct progress_wait){.what = progress_wanted() ? what : NULL};
	if (!w->what)
		return;
	pthread_mutex_init(&w->lock, NULL);
	cond_init(&w->wake);
	progress_show("%s", what);
	if (pthread_create(&w->thread, NULL, wait_main, w)) {
		progress_end();
		w->what = NULL;
	}
}

void progress_wait_end(struct progress_wait *w)
{
	if (!w->what)
		return;
	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	progress_end();
}
