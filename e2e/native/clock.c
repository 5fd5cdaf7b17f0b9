/* The time of day that a program sees, moved by so many seconds as a file says, which is read at each look. Loaded before the C
 * library (LD_PRELOAD). The variable names a folder; the file in it has the name of the program. Clocks that measure how much time
 * has passed are left alone, as when an administrator or NTP sets the clock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long moved(void) {
    /* What was read last holds while there is no descriptor to read it with. */
    static long long last;
    char path[512], text[32];
    const char *folder = getenv("SCALWS_TEST_CLOCKS");
    if (folder == NULL) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, program_invocation_short_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return last;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length > 0) {
        text[length] = 0;
        last = atoll(text);
    }
    return last;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int before = errno;
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI) now->tv_sec += moved();
    errno = before;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &fine) != 0) return -1;
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (also != NULL) *also = fine.tv_sec;
    return fine.tv_sec;
}
