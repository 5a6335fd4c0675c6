#!/usr/bin/env bash
# Installs a package in a bare root, and uses it there: a program that knows nothing of this project,
# its connections, and its pages for man. As root.
#
#     packaging/try.sh landfall_0.1.0_amd64.deb
#
# The root is made by debootstrap; where that is missing, or cannot reach what it needs, out of this
# machine's own essential packages. LANDFALL_BARE_ROOT=host asks for the second at once.
set -euo pipefail
die() { echo "packaging: $*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || die "only root can install a package"
[[ ${1:-} == *.deb && -e $1 ]] || die "say which package: try.sh FILE.deb"
package=$(realpath "$1")
# What is mounted here is nobody else's, and goes with this.
if [[ -z ${LANDFALL_OWN_MOUNTS:-} ]]; then
    LANDFALL_OWN_MOUNTS=1 exec unshare --mount --pid --fork --kill-child bash "${BASH_SOURCE[0]}" "$package"
fi
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
scratch=$(mktemp -d)
root=$scratch/root
finish() {
    umount -l "$root/dev/shm" "$root/proc" 2>/dev/null || true
    # Only what is on this file system.
    rm -rf --one-file-system "$scratch"
}
trap finish EXIT

main() {
    if [[ ${LANDFALL_BARE_ROOT:-} != host ]] && by_debootstrap; then
        echo "a bare root by debootstrap"
    else
        rm -rf --one-file-system "$root"
        out_of_this_machine
        echo "a bare root out of this machine's essential packages"
    fi
    mkdir -p "$root/proc" "$root/dev/shm" "$root/tmp"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    [[ -e $root/dev/null ]] || mknod -m 666 "$root/dev/null" c 1 3
    cp "$package" "$root/landfall.deb"
    within dpkg -i /landfall.deb >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log"; die "it cannot be installed"; }
    within landfall --version
    within landfall run -- true
    a_program_uses_it
    nothing_is_left
    within dpkg --purge landfall >/dev/null 2>&1
    [[ ! -e $root/usr/bin/landfall && -z $(find "$root/usr" -name '*landfall*') ]] || die "something is left of it"
    echo "installed, used and removed"
}

within() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "$@"; }

by_debootstrap() {
    local suite
    command -v debootstrap >/dev/null || return 1
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
    timeout 400 debootstrap --variant=minbase "$suite" "$root" http://deb.debian.org/debian >"$scratch/debootstrap.log" 2>&1
}

# The files of all packages that are essential here and of what those need, with dpkg's own notes of them.
out_of_this_machine() {
    local packages
    mapfile -t packages < <(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p')
    mapfile -t packages < <(apt-cache depends --recurse --installed -i "${packages[@]}" |
        sed -n 's/^ *[|]*\(Pre\)\?Depends: \([^<>]*\)$/\2/p; s/^\([a-z0-9][^ ]*\)$/\1/p' | sed 's/:.*//' | sort -u |
        xargs dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | sort -u)
    ((${#packages[@]} > 20)) || die "dpkg names too few packages: ${packages[*]}"
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    # Links that make /bin a part of /usr belong to no package.
    for link in bin sbin lib lib64; do
        [[ ! -L /$link ]] || { mkdir -p "$root/$(readlink "/$link")"; cp -a "/$link" "$root/$link"; }
    done
    for name in "${packages[@]}"; do dpkg-query -L "$name" 2>/dev/null || true; done | grep '^/' | sort -u |
        while read -r path; do [[ ! -e $path && ! -L $path ]] || echo "$path"; done |
        tar --create --no-recursion --files-from=- 2>/dev/null | tar --extract --keep-directory-symlink --directory="$root"
    dpkg-query -s "${packages[@]}" >"$root/var/lib/dpkg/status"
    for name in "${packages[@]}"; do cp -a /var/lib/dpkg/info/"$name".* /var/lib/dpkg/info/"$name":*.* "$root/var/lib/dpkg/info/" 2>/dev/null || true; done
    # Which names of programs stand for which: links that belong to no package.
    cp -a /etc/alternatives "$root/etc/" 2>/dev/null || true
    cp /etc/passwd /etc/group "$root/etc/"
    chroot "$root" ldconfig
}

# Both ends of a connection in a Perl that every Debian has, under the library by the loader alone, as
# the drop-in for systemd has it.
a_program_uses_it() {
    local seen
    cat >"$root/talk.pl" <<'END'
use IO::Socket::INET; $| = 1;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1) or die "no listener: $!";
my $one = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $listener->sockport) or die "no caller: $!";
my $other = $listener->accept or die "nobody calls: $!";
for (1 .. 9) { for my $ends ([$one, $other], [$other, $one]) {
    syswrite $ends->[0], "word" x 100; sysread($ends->[1], my $got, 400) == 400 or die "lost";
} }
print "said\n"; readline STDIN;
END
    # One stays open while the connections are looked at.
    mkfifo "$scratch/stdin"
    within LD_PRELOAD=liblandfall_preload.so LANDFALL_LOG=/log perl /talk.pl <"$scratch/stdin" >"$scratch/stdout" 2>&1 &
    exec 8>"$scratch/stdin"
    for _ in $(seq 100); do
        grep -q said "$scratch/stdout" && break
        sleep 0.1
    done
    grep -q said "$scratch/stdout" || { cat "$scratch/stdout"; die "the program did not speak"; }
    seen=$(within landfall ss --program perl)
    exec 8>&-
    wait
    echo "$seen"
    [[ $(grep -c "both ends have the library" <<<"$seen") == 2 ]] || { cat "$root/log"; die "that is not memory"; }
    [[ $(grep -c ": memory: both ends have the library" "$root/log") == 2 ]] || die "the log says something else"
}

nothing_is_left() {
    [[ -z $(ls -A "$root/dev/shm") ]] || { find "$root/dev/shm"; die "something is left in shared memory"; }
}

main
