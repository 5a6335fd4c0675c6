//! What the commands of this crate need of the program that they are part of, and what stands
//! below their help.

use std::error::Error;
use std::io;
use std::time::Duration;

/// Why a command failed, in words for its user.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// Signals and a terminal.
pub trait Program {
    /// Waits this long, or until the program shall end, and says whether it shall: true once for
    /// each signal.
    ///
    /// # Errors
    /// Signals cannot be waited for.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;

    /// Says something to the user.
    ///
    /// # Errors
    /// Nobody reads it.
    fn print(&mut self, text: &str) -> io::Result<()>;

    /// Says something that is no result: a line beside them.
    fn warn(&mut self, text: &str);
}

/// What stands below the help of `landfall scsi serve`.
pub const SCSI_EXAMPLES: &str = "\
Examples:
  landfall scsi serve --target iqn.2026-01.example:disks --lun 0=file:disk.img     then: iscsi-ls -s iscsi://127.0.0.1
  landfall scsi serve --target iqn.2026-01.example:disks --lun 0=mem:1G --lun 1=file:/dev/vg/b --listen 0.0.0.0:3260
  sudo landfall scsi serve --target iqn.2026-01.example:disks --lun 0=mem:1G --listen qp://10.9.0.2:3260
  landfall scsi serve --target iqn.2026-01.example:disks --lun 0=mem:1G --listen stp://0.0.0.0:3260     then: landfall scsi list stp://HOST:3260

Then, elsewhere: qemu-io -f raw iscsi://HOST/iqn.2026-01.example:disks/0 -c 'read 0 4k'. SYNCHRONIZE
CACHE and writes with FUA return when the data is on the medium (fdatasync).";

/// What stands below the help of `landfall nbd serve`.
pub const NBD_EXAMPLES: &str = "\
Examples:
  landfall nbd serve --export disk=file:disk.img          then: nbdinfo nbd://127.0.0.1/disk
  landfall nbd serve --export a=mem:1G --export b=file:/dev/vg/b --listen 0.0.0.0:10809
  landfall nbd serve --export disk=file:disk.img --read-only --unix /run/user/1000/nbd.sock
  landfall nbd serve --export disk=mem:1G --tls-cert cert.pem --tls-key key.pem --tls-required
  sudo landfall nbd serve --export disk=mem:1G --listen qp://10.9.0.2:10809     then: nbdinfo nbd://10.9.0.2/disk
  landfall nbd serve --export disk=mem:1G --listen stp://0.0.0.0:10809     for landfall nbd copy and its like

A file is as large as it is: `truncate -s 10G disk.img` makes one. A flush and a request with
FUA return when the data is on the medium (fdatasync); what is only written may be in the
page cache. Memory is gone when the server ends.

It runs until SIGINT or SIGTERM (or for as long as --seconds says): requests that have begun
are ended, and clients are told.";

/// What stands below the help of `landfall nbd copy`.
pub const COPY_EXAMPLES: &str = "\
Examples:
  landfall nbd copy nbd://host/disk disk.img        a device to a file, which is made
  landfall nbd copy disk.img nbd://host/disk        a file to a device
  landfall nbd copy nbd://a/disk nbd://b/disk       from one server to another
  landfall nbd copy nbd+qp://10.9.0.2/disk nbd+stp://b/disk --interface eth1 --address 10.9.0.3/24

Holes are not read, and stay holes. When it ends all is on the medium at the other end.";

/// What stands below the help of `landfall nbd info`.
pub const INFO_EXAMPLES: &str = "\
Examples:
  landfall nbd info nbd://host/disk            one export: its size, and what it can do
  landfall nbd info --list --json nbd://host   all exports of a server, for programs
  landfall nbd info nbd+qp://10.9.0.2/disk --address 10.9.0.3/24 --tunnel 127.0.0.1:0 --peer 127.0.0.1:8118";

/// What stands below the help of `landfall nbd bench`.
pub const BENCH_EXAMPLES: &str = "\
Examples:
  landfall nbd bench nbd://host/disk                           random reads of 4 KiB
  landfall nbd bench nbd://host/disk --work write --depth 1   one write after another
  landfall nbd bench nbd://host/disk --order sequential --block 256K --json
  landfall nbd bench nbd+stp://host/disk                      by the Scheduled Transfer Protocol";
