//! The structures of `fi_endpoint.h`, `fi_cm.h`, `fi_tagged.h` and `fi_rma.h`.

use std::ffi::{c_int, c_void};

use libc::{iovec, size_t, ssize_t};

use super::types::{fi_addr_t, fid, unsupported};

#[repr(C)]
#[derive(Debug)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: size_t,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: size_t,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: size_t,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: size_t,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: size_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_ep {
    pub size: size_t,
    pub cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> ssize_t,
    pub getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut size_t) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, size_t) -> c_int,
    pub tx_ctx: unsupported,
    pub rx_ctx: unsupported,
    pub rx_size_left: unsupported,
    pub tx_size_left: unsupported,
}

type recv_call = unsafe extern "C" fn(
    *mut fid_ep,
    *mut c_void,
    size_t,
    *mut c_void,
    fi_addr_t,
    *mut c_void,
) -> ssize_t;

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_msg {
    pub size: size_t,
    pub recv: recv_call,
    pub recvv: unsafe extern "C" fn(
        *mut fid_ep,
        *const iovec,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        *mut c_void,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t,
    pub send: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        fi_addr_t,
        *mut c_void,
    ) -> ssize_t,
    pub sendv: unsafe extern "C" fn(
        *mut fid_ep,
        *const iovec,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        *mut c_void,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t,
    pub inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, fi_addr_t) -> ssize_t,
    pub senddata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        u64,
        fi_addr_t,
        *mut c_void,
    ) -> ssize_t,
    pub injectdata:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, u64, fi_addr_t) -> ssize_t,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_tagged {
    pub size: size_t,
    pub recv: unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        size_t,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub recvv: unsafe extern "C" fn(
        *mut fid_ep,
        *const iovec,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t,
    pub send: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub sendv: unsafe extern "C" fn(
        *mut fid_ep,
        *const iovec,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t,
    pub inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, fi_addr_t, u64) -> ssize_t,
    pub senddata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        u64,
        fi_addr_t,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub injectdata:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, u64, fi_addr_t, u64) -> ssize_t,
}

type rma_call = unsafe extern "C" fn(
    *mut fid_ep,
    *mut c_void,
    size_t,
    *mut c_void,
    fi_addr_t,
    u64,
    u64,
    *mut c_void,
) -> ssize_t;

type rma_vector_call = unsafe extern "C" fn(
    *mut fid_ep,
    *const iovec,
    *mut *mut c_void,
    size_t,
    fi_addr_t,
    u64,
    u64,
    *mut c_void,
) -> ssize_t;

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_rma {
    pub size: size_t,
    pub read: rma_call,
    pub readv: rma_vector_call,
    pub readmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t,
    pub write: rma_call,
    pub writev: rma_vector_call,
    pub writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t,
    pub inject:
        unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, fi_addr_t, u64, u64) -> ssize_t,
    pub writedata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        u64,
        fi_addr_t,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
    pub injectdata: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        u64,
        fi_addr_t,
        u64,
        u64,
    ) -> ssize_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: size_t,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: size_t,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: size_t,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: size_t,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_atomic_attr {
    pub count: size_t,
    pub size: size_t,
}

type atomic_check = unsafe extern "C" fn(*mut fid_ep, c_int, c_int, *mut size_t) -> c_int;

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_atomic {
    pub size: size_t,
    pub write: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub writev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_atomic, u64) -> ssize_t,
    pub inject: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
    ) -> ssize_t,
    pub readwrite: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub readwritev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        *mut *mut c_void,
        size_t,
        *mut fi_ioc,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub readwritemsg: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_msg_atomic,
        *mut fi_ioc,
        *mut *mut c_void,
        size_t,
        u64,
    ) -> ssize_t,
    pub compwrite: unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub compwritev: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_ioc,
        *mut *mut c_void,
        size_t,
        *const fi_ioc,
        *mut *mut c_void,
        size_t,
        *mut fi_ioc,
        *mut *mut c_void,
        size_t,
        fi_addr_t,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    pub compwritemsg: unsafe extern "C" fn(
        *mut fid_ep,
        *const fi_msg_atomic,
        *const fi_ioc,
        *mut *mut c_void,
        size_t,
        *mut fi_ioc,
        *mut *mut c_void,
        size_t,
        u64,
    ) -> ssize_t,
    pub writevalid: atomic_check,
    pub readwritevalid: atomic_check,
    pub compwritevalid: atomic_check,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_cm {
    pub size: size_t,
    pub setname: unsafe extern "C" fn(*mut fid, *mut c_void, size_t) -> c_int,
    pub getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut size_t) -> c_int,
    pub getpeer: unsafe extern "C" fn(*mut fid_ep, *mut c_void, *mut size_t) -> c_int,
    pub connect: unsafe extern "C" fn(*mut fid_ep, *const c_void, *const c_void, size_t) -> c_int,
    pub listen: unsafe extern "C" fn(*mut fid_pep) -> c_int,
    pub accept: unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t) -> c_int,
    pub reject: unsafe extern "C" fn(*mut fid_pep, *mut fid, *const c_void, size_t) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut fid_ep, u64) -> c_int,
    pub join: unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const c_void,
}
