/* How a daemon's heap grows. */
#ifndef TWOFOLD_HEAP_H
#define TWOFOLD_HEAP_H

/* To be called once, before the process has a second thread: one heap for all threads, that lies on huge pages where the kernel gives them and keeps what was freed. */
void heap_prepare(void);
#endif
