//! The folder of a group, for connections between programs of several users: `LANDFALL_GROUP` says
//! which.
//!
//! Its members trust each other as the programs of one user do. It lies beside the folders of
//! users, one for each group, boot and network namespace, and the one of them who comes first makes it. Nobody can give a
//! folder to a group that he is not in: so one that is the group's, and closed to all others, is of
//! a member or of the superuser. What is made in it is the group's, too (the set-group-ID bit).

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fault, Folder, NOBODY, Owner, Path, end_of_path, knows_all};
use crate::kernel::{self, Errno};

const BEGINNING: &[u8] = b"/dev/shm/landfall-group-";
/// Rights of a folder of a group, with the bit that gives its group to what is made in it.
const RIGHTS: u32 = 0o2770;
const NONE: u32 = u32::MAX;

static GROUP: AtomicU32 = AtomicU32::new(NONE);

/// Connections within this host are for the members of this group from here on.
pub(crate) fn begin(group: u32) {
    GROUP.store(group, Ordering::Relaxed);
}

/// The group whose members share memory, if not only those of one user do.
pub(crate) fn known() -> Option<u32> {
    Some(GROUP.load(Ordering::Relaxed)).filter(|group| *group != NONE)
}

pub(super) fn path(group: u32) -> Result<Path, Errno> {
    let mut path = Path::new();
    path.push(BEGINNING);
    path.push_hex(&group.to_be_bytes());
    let end = end_of_path()?;
    path.push(&end.bytes[..end.len]);
    Ok(path)
}

impl Folder {
    /// Opens the one of a group.
    pub(crate) fn open_of_group(group: u32) -> Result<Self, Fault> {
        Self::open_of_group_at(&path(group)?, group)
    }

    /// Makes something in it, which is made if it is not there.
    pub(crate) fn make_in_groups<T>(
        group: u32,
        job: impl Fn(&Self) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        Self::make_in_with(|| Self::open_or_make_of_group_at(&path(group)?, group), job)
    }

    fn open_or_make_of_group_at(path: &Path, group: u32) -> Result<Self, Fault> {
        match Self::open_of_group_at(path, group) {
            Err(Fault::Kernel(Errno(libc::ENOENT))) => {
                make(path, group).map_err(|why| Fault::NotForUs(group, why))?;
                Self::open_of_group_at(path, group)
            }
            other => other,
        }
    }

    fn open_of_group_at(path: &Path, group: u32) -> Result<Self, Fault> {
        let folder = match Self::open_unproven(path.as_c_str(), Owner::Group(group)) {
            Ok(folder) => folder,
            Err(Errno(libc::ENOTDIR | libc::ELOOP)) => return Err(Fault::NotOfGroup(group)),
            Err(Errno(why @ (libc::EACCES | libc::EPERM))) => {
                return Err(Fault::NotForUs(group, Errno(why)));
            }
            Err(why) => return Err(why.into()),
        };
        let status = kernel::status(folder.fd)?;
        if status.st_gid != group || status.st_mode & 0o7777 != RIGHTS {
            return Err(Fault::NotOfGroup(group));
        }
        if group == NOBODY && !knows_all(c"/proc/self/gid_map") {
            return Err(Fault::Nameless);
        }
        Ok(folder)
    }
}

/// Makes the folder, whole: it gets its name when it is the group's. One who was faster is looked
/// at as if he had been there before.
fn make(path: &Path, group: u32) -> Result<(), Errno> {
    let mut unnamed = *path;
    unnamed.push(b"-");
    unnamed.push_number(kernel::process());
    unnamed.push(b"-");
    unnamed.push_number(kernel::thread());
    kernel::make_folder(unnamed.as_c_str(), 0o700)?;
    let made = kernel::give_to_group(unnamed.as_c_str(), group)
        .and_then(|_| kernel::set_rights(unnamed.as_c_str(), RIGHTS))
        .and_then(|_| match kernel::rename_to_free(unnamed.as_c_str(), path.as_c_str()) {
            Err(Errno(libc::EEXIST)) => {
                let _ = kernel::remove_folder(unnamed.as_c_str());
                Ok(0)
            }
            renamed => renamed,
        });
    made.map(drop).inspect_err(|_| {
        let _ = kernel::remove_folder(unnamed.as_c_str());
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::super::tests::Scratch;
    use super::*;

    /// one that this process is in, no matter who runs it.
    fn own_group() -> u32 {
        // SAFETY: it cannot fail.
        unsafe { libc::getegid() }
    }

    fn place(scratch: &Scratch, name: &str) -> Path {
        let mut path = Path::new();
        path.push(scratch.0.join(name).as_os_str().as_bytes());
        path
    }

    #[test]
    fn what_is_made_for_a_group_is_the_group_s_and_nobody_else_s() {
        let scratch = Scratch::new("group");
        let path = place(&scratch, "made");
        // However the program has set its mask.
        let folder = Folder::open_or_make_of_group_at(&path, own_group()).unwrap();
        let file = folder.create(c"name").unwrap();
        let status = kernel::status(file).unwrap();
        kernel::close(file).unwrap();
        assert_eq!((status.st_gid, status.st_mode & 0o7777), (own_group(), 0o660));
        let data = fs::metadata(scratch.0.join("made")).unwrap();
        assert_eq!((data.gid(), data.mode() & 0o7777), (own_group(), RIGHTS));
        let again = Folder::open_or_make_of_group_at(&path, own_group()).unwrap();
        assert!(again.open_file(c"name").is_ok());
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "what had no name yet is left");
    }

    #[test]
    fn one_that_others_may_enter_or_that_is_another_group_s_is_refused() {
        let scratch = Scratch::new("groups");
        for mode in [0o770, 0o2771, 0o2777, 0o3770, 0o2750, 0o2700] {
            let name = format!("{mode:o}");
            fs::create_dir(scratch.0.join(&name)).unwrap();
            fs::set_permissions(scratch.0.join(&name), Permissions::from_mode(mode)).unwrap();
            let opened = Folder::open_or_make_of_group_at(&place(&scratch, &name), own_group());
            assert_eq!(opened.unwrap_err(), Fault::NotOfGroup(own_group()), "{name}");
        }
        let path = place(&scratch, "made");
        drop(Folder::open_or_make_of_group_at(&path, own_group()).unwrap());
        let other = own_group() + 1;
        assert_eq!(
            Folder::open_or_make_of_group_at(&path, other).unwrap_err(),
            Fault::NotOfGroup(other)
        );
        let file = place(&scratch, "file");
        fs::write(scratch.0.join("file"), b"").unwrap();
        let opened = Folder::open_or_make_of_group_at(&file, own_group());
        assert_eq!(opened.unwrap_err(), Fault::NotOfGroup(own_group()));
    }

    #[test]
    fn many_who_make_it_at_once_have_one() {
        let scratch = Scratch::new("at-once");
        let path = place(&scratch, "made");
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| Folder::open_or_make_of_group_at(&path, own_group()).map(drop))
                })
                .collect();
            for maker in makers {
                assert_eq!(maker.join().unwrap(), Ok(()));
            }
        });
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
}
