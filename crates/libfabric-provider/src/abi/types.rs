//! The structures of `fabric.h`, `fi_domain.h`, `fi_eq.h` and `fi_prov.h`.

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, size_t, ssize_t};

use super::transfers::fid_ep;

pub type fi_addr_t = u64;

/// An entry of a table of calls that this provider does not offer: whatever its arguments,
/// which the caller passes and removes, it gives `-FI_ENOSYS`.
pub type unsupported = unsafe extern "C" fn() -> ssize_t;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: size_t,
    pub size: size_t,
    pub iov_limit: size_t,
    pub rma_iov_limit: size_t,
    pub tclass: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: size_t,
    pub size: size_t,
    pub iov_limit: size_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ep_attr {
    pub r#type: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: size_t,
    pub msg_prefix_size: size_t,
    pub max_order_raw_size: size_t,
    pub max_order_war_size: size_t,
    pub max_order_waw_size: size_t,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: size_t,
    pub rx_ctx_cnt: size_t,
    pub auth_key_size: size_t,
    pub auth_key: *mut u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_domain_attr {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: size_t,
    pub cq_data_size: size_t,
    pub cq_cnt: size_t,
    pub ep_cnt: size_t,
    pub tx_ctx_cnt: size_t,
    pub rx_ctx_cnt: size_t,
    pub max_ep_tx_ctx: size_t,
    pub max_ep_rx_ctx: size_t,
    pub max_ep_stx_ctx: size_t,
    pub max_ep_srx_ctx: size_t,
    pub cntr_cnt: size_t,
    pub mr_iov_limit: size_t,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: size_t,
    pub max_err_data: size_t,
    pub mr_cnt: size_t,
    pub tclass: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: size_t,
    pub dest_addrlen: size_t,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut fid,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops {
    pub size: size_t,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    pub ops_open: unsupported,
    pub tostr: unsupported,
    pub ops_set: unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid {
    pub fclass: size_t,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_fabric {
    pub size: size_t,
    pub domain: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut fid_domain,
        *mut c_void,
    ) -> c_int,
    pub passive_ep: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut super::transfers::fid_pep,
        *mut c_void,
    ) -> c_int,
    pub eq_open: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_eq_attr,
        *mut *mut fid_eq,
        *mut c_void,
    ) -> c_int,
    pub wait_open: unsupported,
    pub trywait: unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
    pub domain2: unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_domain {
    pub size: size_t,
    pub av_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_av_attr,
        *mut *mut fid_av,
        *mut c_void,
    ) -> c_int,
    pub cq_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_cq_attr,
        *mut *mut fid_cq,
        *mut c_void,
    ) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    pub scalable_ep: unsupported,
    pub cntr_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_cntr_attr,
        *mut *mut fid_cntr,
        *mut c_void,
    ) -> c_int,
    pub poll_open: unsupported,
    pub stx_ctx: unsupported,
    pub srx_ctx: unsupported,
    pub query_atomic: unsafe extern "C" fn(
        *mut fid_domain,
        c_int,
        c_int,
        *mut super::transfers::fi_atomic_attr,
        u64,
    ) -> c_int,
    pub query_collective: unsupported,
    pub endpoint2: unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_mr {
    pub size: size_t,
    pub reg: unsafe extern "C" fn(
        *mut fid,
        *const c_void,
        size_t,
        u64,
        u64,
        u64,
        u64,
        *mut *mut fid_mr,
        *mut c_void,
    ) -> c_int,
    pub regv: unsafe extern "C" fn(
        *mut fid,
        *const iovec,
        size_t,
        u64,
        u64,
        u64,
        u64,
        *mut *mut fid_mr,
        *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_av_attr {
    pub r#type: c_int,
    pub rx_ctx_bits: c_int,
    pub count: size_t,
    pub ep_per_node: size_t,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_av {
    pub size: size_t,
    pub insert: unsafe extern "C" fn(
        *mut fid_av,
        *const c_void,
        size_t,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: unsafe extern "C" fn(
        *mut fid_av,
        *const c_char,
        *const c_char,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsym: unsupported,
    pub remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, size_t, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut size_t) -> c_int,
    pub straddr:
        unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut size_t) -> *const c_char,
    pub av_set: unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_mr_attr {
    pub mr_iov: *const iovec,
    pub iov_count: size_t,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: size_t,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_eq_attr {
    pub size: size_t,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_err_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: size_t,
}

/// Without the data behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_cm_entry {
    pub fid: *mut fid,
    pub info: *mut fi_info,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_eq {
    pub size: size_t,
    pub read: unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, size_t, u64) -> ssize_t,
    pub readerr: unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> ssize_t,
    pub write: unsafe extern "C" fn(*mut fid_eq, u32, *const c_void, size_t, u64) -> ssize_t,
    pub sread:
        unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, size_t, c_int, u64) -> ssize_t,
    pub strerror: unsafe extern "C" fn(
        *mut fid_eq,
        c_int,
        *const c_void,
        *mut c_char,
        size_t,
    ) -> *const c_char,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *const fi_ops_eq,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: size_t,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: size_t,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: size_t,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: size_t,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_cq_attr {
    pub size: size_t,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_cq {
    pub size: size_t,
    pub read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, size_t) -> ssize_t,
    pub readfrom: unsafe extern "C" fn(*mut fid_cq, *mut c_void, size_t, *mut fi_addr_t) -> ssize_t,
    pub readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t,
    pub sread:
        unsafe extern "C" fn(*mut fid_cq, *mut c_void, size_t, *const c_void, c_int) -> ssize_t,
    pub sreadfrom: unsafe extern "C" fn(
        *mut fid_cq,
        *mut c_void,
        size_t,
        *mut fi_addr_t,
        *const c_void,
        c_int,
    ) -> ssize_t,
    pub signal: unsafe extern "C" fn(*mut fid_cq) -> c_int,
    pub strerror: unsafe extern "C" fn(
        *mut fid_cq,
        c_int,
        *const c_void,
        *mut c_char,
        size_t,
    ) -> *const c_char,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_cntr_attr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops_cntr {
    pub size: size_t,
    pub read: unsafe extern "C" fn(*mut fid_cntr) -> u64,
    pub readerr: unsafe extern "C" fn(*mut fid_cntr) -> u64,
    pub add: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub set: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub wait: unsafe extern "C" fn(*mut fid_cntr, u64, c_int) -> c_int,
    pub adderr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
    pub seterr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *const fi_ops_cntr,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: fi_context,
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const fi_info,
        *mut *mut fi_info,
    ) -> c_int,
    pub fabric:
        unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}
