//! The bindings are what the headers of libfabric say: a C program, written here, compares
//! every size, offset and value at compile time.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use landfall_fi::abi::*;
use landfall_testkit::TemporaryFolder;
use landfall_testkit::or_skip;

use crate::tools::{compile, need_headers};

macro_rules! structures {
    ($into:ident: $($name:ident { $($field:ident),* $(,)? })*) => {
        $(
            let name = stringify!($name);
            let size = size_of::<$name>();
            writeln!($into, "_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");")
                .unwrap();
            $(
                let field = stringify!($field).trim_start_matches("r#");
                let offset = offset_of!($name, $field);
                writeln!(
                    $into,
                    "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");",
                )
                .unwrap();
            )*
        )*
    };
}

macro_rules! values {
    ($into:ident: $($name:ident),* $(,)?) => {
        $(
            #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "they have several types")]
            let (name, value) = (stringify!($name), $name as u64);
            writeln!(
                $into,
                "_Static_assert((uint64_t)({name}) == {value}ULL, \"{name}\");",
            ).unwrap();
        )*
    };
}

const HEADERS: [&str; 10] = [
    "fabric",
    "fi_atomic",
    "fi_cm",
    "fi_domain",
    "fi_endpoint",
    "fi_eq",
    "fi_errno",
    "fi_rma",
    "fi_tagged",
    "providers/fi_prov",
];

#[test]
fn the_bindings_are_what_the_headers_say() {
    or_skip!(need_headers());
    let mut source = String::from("#include <stddef.h>\n#include <stdint.h>\n");
    for header in HEADERS {
        writeln!(source, "#include <rdma/{header}.h>").unwrap();
    }
    structures_of_objects(&mut source);
    structures_of_attributes(&mut source);
    structures_of_calls(&mut source);
    values_of_flags(&mut source);
    values_of_kinds(&mut source);
    source.push_str("int main(void) { return 0; }\n");
    let folder = TemporaryFolder::new("fabric-headers");
    let file = folder.path().join("headers.c");
    std::fs::write(&file, source).unwrap();
    or_skip!(compile("cc", &[file], &folder.path().join("headers"), &[]));
}

fn structures_of_objects(into: &mut String) {
    structures! { into:
        fid { fclass, context, ops }
        fid_fabric { fid, ops, api_version }
        fid_domain { fid, ops, mr }
        fid_av { fid, ops }
        fid_mr { fid, mem_desc, key }
        fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective }
        fid_pep { fid, ops, cm }
        fid_eq { fid, ops }
        fi_eq_err_entry { fid, context, data, err, prov_errno, err_data, err_data_size }
        fi_eq_cm_entry { fid, info }
        fid_cq { fid, ops }
        fid_cntr { fid, ops }
        fi_context { internal }
        fi_provider { version, fi_version, context, name, getinfo, fabric, cleanup }
        fi_msg { msg_iov, desc, iov_count, addr, context, data }
        fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        fi_rma_iov { addr, len, key }
        fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        fi_ioc { addr, count }
        fi_rma_ioc { addr, count, key }
        fi_msg_atomic {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data,
        }
        fi_atomic_attr { count, size }
        fi_cq_tagged_entry { op_context, flags, len, buf, data, tag }
        fi_cq_err_entry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
        }
    }
}

fn structures_of_attributes(into: &mut String) {
    structures! { into:
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle,
            tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic,
        }
        fi_tx_attr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit,
            rma_iov_limit, tclass,
        }
        fi_rx_attr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit,
        }
        fi_ep_attr {
            r#type, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
            max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt,
            auth_key_size, auth_key,
        }
        fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type,
            mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt,
            max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit,
            caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass,
        }
        fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
        fi_av_attr { r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        fi_mr_attr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key,
            iface, device,
        }
        fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set }
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fi_cntr_attr { events, wait_obj, wait_set, flags }
    }
}

fn structures_of_calls(into: &mut String) {
    structures! { into:
        fi_ops { size, close, bind, control, ops_open, tostr, ops_set }
        fi_ops_fabric { size, domain, passive_ep, eq_open, wait_open, trywait, domain2 }
        fi_ops_domain {
            size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx,
            query_atomic, query_collective, endpoint2,
        }
        fi_ops_mr { size, reg, regv, regattr }
        fi_ops_av { size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set }
        fi_ops_ep { size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
        fi_ops_msg {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        fi_ops_tagged {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata,
        }
        fi_ops_rma {
            size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata,
        }
        fi_ops_atomic {
            size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite,
            compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid,
        }
        fi_ops_cm {
            size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join,
        }
        fi_ops_eq { size, read, readerr, write, sread, strerror }
        fi_ops_cq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        fi_ops_cntr { size, read, readerr, add, set, wait, adderr, seterr }
    }
}

fn values_of_flags(into: &mut String) {
    values! { into:
        FI_MSG, FI_RMA, FI_TAGGED, FI_ATOMIC, FI_MULTICAST, FI_COLLECTIVE, FI_READ, FI_WRITE,
        FI_RECV, FI_SEND, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_MULTI_RECV, FI_REMOTE_CQ_DATA,
        FI_MORE, FI_PEEK, FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
        FI_DELIVERY_COMPLETE, FI_LOCAL_COMM, FI_REMOTE_COMM, FI_PROV_ATTR_ONLY, FI_NUMERICHOST,
        FI_RMA_EVENT, FI_SOURCE, FI_DIRECTED_RECV, FI_CLAIM, FI_DISCARD, FI_SELECTIVE_COMPLETION,
        FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC, FI_INT32, FI_UINT32, FI_INT64, FI_UINT64, FI_SUM, FI_BOR,
        FI_BAND, FI_BXOR, FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP,
        FI_SYNC_ERR, FI_ORDER_RAR, FI_ORDER_RAW, FI_ORDER_RAS, FI_ORDER_WAR, FI_ORDER_WAW,
        FI_ORDER_WAS, FI_ORDER_SAR, FI_ORDER_SAW, FI_ORDER_SAS, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_RAR,
        FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW, FI_ADDR_UNSPEC,
        FI_ADDR_NOTAVAIL,
    }
}

fn values_of_kinds(into: &mut String) {
    values! { into:
        FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_AV_UNSPEC, FI_AV_MAP,
        FI_AV_TABLE, FI_MR_BASIC, FI_MR_SCALABLE, FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO,
        FI_PROGRESS_MANUAL, FI_THREAD_UNSPEC, FI_THREAD_SAFE, FI_RM_ENABLED, FI_EP_UNSPEC,
        FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM, FI_PROTO_UNSPEC, FI_CLASS_FABRIC, FI_CLASS_DOMAIN, FI_CLASS_EP, FI_CLASS_AV,
        FI_CLASS_MR, FI_CLASS_EQ, FI_CLASS_CQ, FI_CLASS_CNTR, FI_CLASS_PEP, FI_CLASS_CONNREQ,
        FI_NOTIFY, FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN, FI_GETOPSFLAG, FI_SETOPSFLAG,
        FI_GETWAIT, FI_ENABLE, FI_GETWAITOBJ, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD,
        FI_WAIT_YIELD, FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
        FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_OPT_CM_DATA_SIZE,
        FI_EISCONN, FI_ENOEQ, FI_ENOTCONN, FI_EACCES,
        FI_EADDRINUSE, FI_EADDRNOTAVAIL, FI_EAGAIN, FI_EAVAIL, FI_EBADFLAGS, FI_EBUSY,
        FI_ECANCELED, FI_ECONNREFUSED, FI_ECONNRESET, FI_EINVAL, FI_EIO, FI_EKEYREJECTED,
        FI_EMSGSIZE, FI_ENOAV, FI_ENOCQ, FI_ENODATA, FI_ENOENT, FI_ENOKEY, FI_ENOMEM, FI_ENOMSG,
        FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_EPERM, FI_ETIMEDOUT, FI_ETOOSMALL, FI_ETRUNC,
    }
}

/// A value of the bindings that no list above has would not be compared.
#[test]
fn every_value_is_compared() {
    let (bindings, lists) = (include_str!("../../src/abi/values.rs"), include_str!("headers.rs"));
    let names =
        bindings.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let compared: Vec<&str> = lists.split(|of: char| !of.is_alphanumeric() && of != '_').collect();
    let missing: Vec<&str> = names.filter(|name| !compared.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let types =
        concat!(include_str!("../../src/abi/types.rs"), include_str!("../../src/abi/transfers.rs"));
    let names =
        types.lines().filter_map(|line| line.strip_prefix("pub struct ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !compared.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
