/* One end of a link that a test carries packets over: copies IP packets between a TUN device and its standard input, which is
 * a datagram socket of the test. In C because attaching to the device is an ioctl, which takes `unsafe` in Rust.
 * Argument: the name of the device, in the network namespace that this runs in. */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words) {
    static char packet[65536];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tun < 0 || count != 2 || strlen(words[1]) >= sizeof request.ifr_name) return 1;
    strcpy(request.ifr_name, words[1]);
    if (ioctl(tun, TUNSETIFF, &request) != 0) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd ends[2] = {{.fd = 0, .events = POLLIN}, {.fd = tun, .events = POLLIN}};
    for (;;) {
        if (poll(ends, 2, -1) < 0) return 3;
        for (int from = 0; from < 2; from++) {
            if (ends[from].revents == 0) continue;
            ssize_t length = read(ends[from].fd, packet, sizeof packet);
            if (length <= 0) return 4;
            /* What cannot be delivered is lost, as on any link. */
            if (write(ends[1 - from].fd, packet, length) < 0) continue;
        }
    }
}
