//! `sendmsg` and `recvmsg`, alone and several at once.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, timespec};

use super::{bytes::parts, told, told_int};
use crate::connection::{Connection, Means};
use crate::kernel::Outcome;
use crate::next::next;
use crate::{process, rules, table, transfer};

/// # Safety
///
/// A header of the program, whose parts may be written.
unsafe fn receive(
    connection: &Connection,
    fd: c_int,
    header: &mut msghdr,
    flags: c_int,
) -> Outcome {
    // SAFETY: as promised.
    let received = unsafe {
        let into = parts(header.msg_iov, header.msg_iovlen);
        transfer::receive(connection, fd, into, flags)
    }?;
    // A stream names nobody and has nothing to say beside its bytes.
    (header.msg_namelen, header.msg_controllen, header.msg_flags) = (0, 0, 0);
    Ok(received)
}

/// # Safety
///
/// A header of the program, whose parts may be read.
unsafe fn send(connection: &Connection, fd: c_int, header: &msghdr, flags: c_int) -> Outcome {
    // SAFETY: as promised.
    unsafe {
        let from = parts(header.msg_iov, header.msg_iovlen);
        transfer::send(connection, fd, from, flags)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, header: *mut msghdr, flags: c_int) -> isize {
    if let Some(guard) = table::find(fd) {
        // SAFETY: a header of the program.
        return told(unsafe { receive(&guard, fd, &mut *header, flags) });
    }
    // SAFETY: as above.
    unsafe {
        let received = next!(recvmsg: fn(c_int, *mut msghdr, c_int) -> isize)(fd, header, flags);
        if received >= 0 && (*header).msg_controllen > 0 {
            take_in_descriptors(&*header);
        }
        received
    }
}

/// Descriptors that came in a message may be ends of connections that are shared.
///
/// # Safety
///
/// The kernel has just filled the header.
unsafe fn take_in_descriptors(header: &msghdr) {
    if !rules::are_on() || !process::owns_the_tables() {
        return;
    }
    let take_in = |fd| {
        table::remove(fd);
        Connection::inherited(fd, true);
    };
    // SAFETY: as promised.
    unsafe { each_descriptor(header, take_in) };
}

/// The descriptors that a message carries.
///
/// # Safety
///
/// The control data of the header are as the kernel or the program made them.
unsafe fn each_descriptor(header: &msghdr, mut with: impl FnMut(c_int)) {
    // SAFETY: as promised; the macros of C walk through them.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(header);
        while !part.is_null() {
            if ((*part).cmsg_level, (*part).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(part).cast::<c_int>();
                let bytes = (*part).cmsg_len.saturating_sub(data as usize - part as usize);
                for at in 0..bytes / size_of::<c_int>() {
                    with(data.add(at).read_unaligned());
                }
            }
            part = libc::CMSG_NXTHDR(header, part);
        }
    }
}

/// A message with descriptors: while it is under way it holds what it carries.
///
/// # Safety
///
/// A header of the program.
unsafe fn send_descriptors(fd: c_int, header: *const msghdr, flags: c_int) -> isize {
    let each = |with: &mut dyn FnMut(&Connection, c_int)| {
        // SAFETY: as promised.
        unsafe {
            each_descriptor(&*header, |carried| {
                if let Some(guard) = table::find(carried) {
                    with(&guard, carried);
                }
            });
        }
    };
    let mut means = Means::of_a_fork();
    each(&mut |connection, fd| connection.is_held_once_more(fd, &mut means));
    // SAFETY: as promised.
    let sent =
        unsafe { next!(sendmsg: fn(c_int, *const msghdr, c_int) -> isize)(fd, header, flags) };
    if sent < 0 {
        each(&mut |connection, _| connection.is_held_once_less());
    }
    sent
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, header: *const msghdr, flags: c_int) -> isize {
    match table::find(fd) {
        // SAFETY: a header of the program, here and below.
        Some(guard) => told(unsafe { send(&guard, fd, &*header, flags) }),
        // SAFETY: what the program gave, as libc asks for it.
        None if rules::are_on() && !header.is_null() && unsafe { (*header).msg_controllen > 0 } => unsafe {
            send_descriptors(fd, header, flags)
        },
        // SAFETY: what the program gave, as libc asks for it.
        None => unsafe {
            next!(sendmsg: fn(c_int, *const msghdr, c_int) -> isize)(fd, header, flags)
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    headers: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let Some(guard) = table::find(fd) else {
        // SAFETY: headers of the program.
        return unsafe {
            next!(recvmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int)(
                fd, headers, count, flags, limit,
            )
        };
    };
    let mut flags = flags;
    told_int(several(count, |at| {
        // SAFETY: this many headers.
        let header = unsafe { &mut *headers.add(at) };
        // SAFETY: a header of the program.
        let received =
            unsafe { receive(&guard, fd, &mut header.msg_hdr, flags & !libc::MSG_WAITFORONE) }?;
        header.msg_len = received as c_uint;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        Ok(received)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    headers: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let Some(guard) = table::find(fd) else {
        // SAFETY: headers of the program.
        return unsafe {
            next!(sendmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int)(
                fd, headers, count, flags,
            )
        };
    };
    told_int(several(count, |at| {
        // SAFETY: this many headers.
        let header = unsafe { &mut *headers.add(at) };
        // SAFETY: a header of the program.
        let sent = unsafe { send(&guard, fd, &header.msg_hdr, flags) }?;
        header.msg_len = sent as c_uint;
        Ok(sent)
    }))
}

/// One message after the other; how many went well before one did not.
fn several(count: c_uint, mut one: impl FnMut(usize) -> Outcome) -> Outcome {
    for at in 0..count as usize {
        match one(at) {
            Ok(_) => {}
            Err(why) if at == 0 => return Err(why),
            Err(_) => return Ok(at),
        }
    }
    Ok(count as usize)
}
