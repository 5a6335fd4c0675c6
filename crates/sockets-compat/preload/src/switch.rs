//! The switch for programs that run: a file. While it is there, new connections stay TCP; those that
//! are memory go on.
//!
//! There is one of the host, which root makes, and one of each user. That lies where everybody may
//! write, so it counts only if it belongs to its user or to root, and is no link. It is looked for
//! when a connection is made, but not more often than ten times a second.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use landfall_socket_status::{Explanation, HOST_SWITCH, USER_SWITCH};

use crate::folder::Path;
use crate::{kernel, log};

/// What was seen is believed for so long.
const LOOK_EVERY_MS: u64 = 100;

static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
static IS_OFF: AtomicBool = AtomicBool::new(false);
/// Whose switch it is.
static WHOSE: AtomicU32 = AtomicU32::new(Explanation::OF_HOST);

/// Whose switch leaves new connections to TCP now; `None` where none does.
pub(crate) fn is_off() -> Option<u32> {
    let (now, before) = (kernel::milliseconds(), LOOKED_AT.load(Ordering::Relaxed));
    let is_due = before == 0 || now.saturating_sub(before) >= LOOK_EVERY_MS;
    if is_due
        && LOOKED_AT.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        look();
    }
    IS_OFF.load(Ordering::Acquire).then(|| WHOSE.load(Ordering::Relaxed))
}

fn look() {
    let user = kernel::user();
    let whose = if is_there(&path_of_host(), None) {
        Some(Explanation::OF_HOST)
    } else {
        is_there(&path_of(user), Some(user)).then_some(user)
    };
    if let Some(whose) = whose {
        WHOSE.store(whose, Ordering::Relaxed);
    }
    if IS_OFF.swap(whose.is_some(), Ordering::Release) != whose.is_some() {
        let what = if whose.is_some() { "stay TCP: switched off" } else { "may be memory again" };
        log::say(format_args!("new connections {what}"));
    }
}

fn path_of_host() -> Path {
    let mut path = Path::new();
    path.push(HOST_SWITCH.as_bytes());
    path
}

fn path_of(user: u32) -> Path {
    let mut path = Path::new();
    path.push(USER_SWITCH.as_bytes());
    path.push_number(user);
    path
}

/// Whether the file is there, and belongs to this user or to root.
fn is_there(path: &Path, user: Option<u32>) -> bool {
    kernel::status_of_itself(path.as_c_str()).is_ok_and(|status| {
        let is_link = status.st_mode & libc::S_IFMT == libc::S_IFLNK;
        user.is_none_or(|user| !is_link && (status.st_uid == user || status.st_uid == 0))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn a_switch_is_of_its_user_or_of_root_and_no_link() {
        let name =
            format!("{}/landfall-switch-{}", std::env::temp_dir().display(), std::process::id());
        let mut path = Path::new();
        path.push(name.as_bytes());
        let user = kernel::user();
        assert!(!is_there(&path, Some(user)));
        fs::write(&name, "").unwrap();
        assert!(is_there(&path, Some(user)));
        // Root can give it away; for everybody else another user's is what another made.
        if user == 0 {
            chown(&name, Some(4711), None).unwrap();
            assert!(!is_there(&path, Some(4712)) && is_there(&path, Some(4711)));
        }
        fs::remove_file(&name).unwrap();
        symlink("/proc/self/status", &name).unwrap();
        assert!(!is_there(&path, Some(user)));
        fs::remove_file(&name).unwrap();
    }
}
