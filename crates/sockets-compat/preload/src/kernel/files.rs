//! Files and folders, and memory that is mapped.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::{Errno, Outcome, call, close};

/// What the kernel knows of an open file.
pub(crate) fn status(fd: c_int) -> Result<libc::stat, Errno> {
    // SAFETY: numbers only.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let empty: &CStr = c"";
    call!(
        libc::SYS_newfstatat,
        fd,
        empty.as_ptr(),
        ptr::from_mut(&mut status),
        libc::AT_EMPTY_PATH
    )?;
    Ok(status)
}

/// What the kernel knows of a file by its name.
pub(crate) fn status_of(path: &CStr) -> Result<libc::stat, Errno> {
    status_by_name(path, 0)
}

/// The same; of a link, not of what that leads to.
pub(crate) fn status_of_itself(path: &CStr) -> Result<libc::stat, Errno> {
    status_by_name(path, libc::AT_SYMLINK_NOFOLLOW)
}

fn status_by_name(path: &CStr, flags: c_int) -> Result<libc::stat, Errno> {
    // SAFETY: numbers only.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    call!(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), ptr::from_mut(&mut status), flags)?;
    Ok(status)
}

/// The first bytes of a file.
pub(crate) fn read_file(path: &CStr, into: &mut [u8]) -> Outcome {
    let file = open(path, libc::O_RDONLY, 0)?;
    let read = call!(libc::SYS_read, file, into.as_mut_ptr(), into.len());
    close(file)?;
    read
}

/// Opens a file; it closes over `exec`.
pub(crate) fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    open_at(libc::AT_FDCWD, path, flags, mode)
}

/// The same by way of an open folder.
pub(crate) fn open_at(folder: c_int, path: &CStr, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    call!(libc::SYS_openat, folder, path.as_ptr(), flags, mode).map(|fd| fd as c_int)
}

pub(crate) fn make_folder(path: &CStr, mode: u32) -> Outcome {
    call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), mode)
}

pub(crate) fn remove_at(folder: c_int, path: &CStr) -> Outcome {
    call!(libc::SYS_unlinkat, folder, path.as_ptr(), 0 as c_int)
}

pub(crate) fn give_to_group(path: &CStr, group: u32) -> Outcome {
    let nobody = u32::MAX;
    call!(libc::SYS_fchownat, libc::AT_FDCWD, path.as_ptr(), nobody, group, 0 as c_int)
}

/// Sets the rights of a file, whatever mask the program has for those that it makes.
pub(crate) fn set_rights(path: &CStr, mode: u32) -> Outcome {
    call!(libc::SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), mode)
}

/// The same of an open file.
pub(crate) fn set_rights_of(fd: c_int, mode: u32) -> Outcome {
    call!(libc::SYS_fchmod, fd, mode)
}

/// Gives it another name, if nothing has that yet.
pub(crate) fn rename_to_free(from: &CStr, to: &CStr) -> Outcome {
    let here = libc::AT_FDCWD;
    call!(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), libc::RENAME_NOREPLACE)
}

/// Removes a folder that is empty.
pub(crate) fn remove_folder(path: &CStr) -> Outcome {
    call!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), libc::AT_REMOVEDIR)
}

/// Gives a file its length.
pub(crate) fn set_len(fd: c_int, len: u64) -> Outcome {
    call!(libc::SYS_ftruncate, fd, len)
}

/// Maps a part of a file for reading and writing, shared with all who do so.
pub(crate) fn map(fd: c_int, from: usize, len: usize) -> Result<*mut u8, Errno> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let anywhere = ptr::null::<c_void>();
    call!(libc::SYS_mmap, anywhere, len, rights, libc::MAP_SHARED, fd, from)
        .map(ptr::with_exposed_provenance_mut)
}

/// Maps one part of a file in the place of what is mapped there.
///
/// # Safety
///
/// `place` is the first of this many bytes that `map` has mapped, and nobody uses them.
pub(crate) unsafe fn map_over(place: *mut u8, fd: c_int, from: usize, len: usize) -> Outcome {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    call!(libc::SYS_mmap, place, len, rights, libc::MAP_SHARED | libc::MAP_FIXED, fd, from)
}

/// Memory of this process alone, all zero.
pub(crate) fn map_private(len: usize) -> Result<*mut u8, Errno> {
    map_anonymous(len, libc::MAP_PRIVATE)
}

/// The same, which those that come from it by forks have in common with it.
pub(crate) fn map_common(len: usize) -> Result<*mut u8, Errno> {
    map_anonymous(len, libc::MAP_SHARED)
}

fn map_anonymous(len: usize, whose: c_int) -> Result<*mut u8, Errno> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let how = whose | libc::MAP_ANONYMOUS;
    call!(libc::SYS_mmap, ptr::null::<c_void>(), len, rights, how, -1 as c_int, 0_usize)
        .map(ptr::with_exposed_provenance_mut)
}

/// A page that is all zero in the copies of this memory that forks make; kernels before Linux 4.14
/// have none.
pub(crate) fn map_wiped_in_children() -> Result<*mut u8, Errno> {
    const LEN: usize = 4096;
    let page = map_private(LEN)?;
    call!(libc::SYS_madvise, page, LEN, libc::MADV_WIPEONFORK).map(|_| page).inspect_err(|_| {
        // SAFETY: nobody else knows of it.
        unsafe { unmap(page, LEN) };
    })
}

/// Gets the memory behind a part of a mapping, which a store would otherwise get, and end the
/// program where there is none. Kernels before Linux 5.14, pages of another size and filters
/// that forbid this leave it to the store.
pub(crate) fn populate(base: *mut u8, len: usize) -> Result<(), Errno> {
    const MADV_POPULATE_WRITE: c_int = 23;
    match call!(libc::SYS_madvise, base, len, MADV_POPULATE_WRITE) {
        Err(Errno(why @ (libc::EFAULT | libc::ENOMEM))) => Err(Errno(why)),
        _ => Ok(()),
    }
}

/// Ends a mapping.
///
/// # Safety
///
/// `map` made it, and nobody uses it any more.
pub(crate) unsafe fn unmap(base: *mut u8, len: usize) {
    let _ = call!(libc::SYS_munmap, base, len);
}
