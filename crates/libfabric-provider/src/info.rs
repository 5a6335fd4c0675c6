//! What this provider offers, and whether it is what a program asks for: `fi_getinfo`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, SocketAddr};

use crate::abi::*;
use crate::address::{Local, format_of, len_of, resolve, to_raw};
use crate::buffer::MOST_PIECES;
use crate::ring::MOST_PAYLOAD;
use crate::settings::Settings;
use crate::world::MOST_KEY;

/// So long messages may be injected: they go into the ring.
pub(crate) const MOST_INJECTED: usize = 4096;
/// The longest message: what one read of STP names.
pub(crate) const MOST_MESSAGE: usize = 1 << 40;

const _: () = assert!(MOST_INJECTED <= MOST_PAYLOAD);
const _: () = assert!(MOST_KEY <= u32::MAX as u64);

const TRANSMIT: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RECEIVE: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_RECV
    | FI_MULTI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_DIRECTED_RECV
    | FI_SOURCE;
const WHERE: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// What an endpoint can do.
const CAPABILITIES: u64 = TRANSMIT | RECEIVE | WHERE;
/// What one can do of this type, over a carrier that reaches memory of the other side, or not.
const fn capabilities_of(kind: c_int, reaches_memory: bool) -> u64 {
    let offered = match kind {
        // There is one peer, whom nobody has to choose or to tell.
        FI_EP_MSG => CAPABILITIES & !ON_REQUEST,
        FI_EP_DGRAM => CAPABILITIES & !(KINDS & !FI_MSG) & !OF_MEMORY,
        _ => CAPABILITIES,
    };
    if reaches_memory { offered } else { offered & !(FI_RMA | FI_ATOMIC | OF_MEMORY) }
}

/// What operations there are.
const KINDS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const OF_MEMORY: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// The longest message of an endpoint of this type.
pub(crate) const fn longest_of(kind: c_int) -> usize {
    // One that nobody has to ask the peer for.
    if kind == FI_EP_DGRAM { MOST_PAYLOAD } else { MOST_MESSAGE }
}

/// What programs get only where they ask for it.
const ON_REQUEST: u64 = FI_DIRECTED_RECV | FI_SOURCE;
const TRANSMIT_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MORE;
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;
/// Sends of one peer to another arrive in order, after the writes and before the reads that
/// were begun before them. Words are changed in the order of the calls: a FetchOp of STP is carried
/// out when all before it are in place.
const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_SAW
    | FI_ORDER_RAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// Whether one thing that is asked for is offered.
type Verdict = Result<(), &'static str>;

fn check(is_met: bool, what: &'static str) -> Verdict {
    if is_met { Ok(()) } else { Err(what) }
}

const fn is_among(asked: u64, offered: u64) -> bool {
    asked & !offered == 0
}

/// Is it what these hints ask for? The error names what is not.
///
/// # Safety
/// The hints are as libfabric describes them: what they point to is there, or null.
pub(crate) unsafe fn accepts(hints: &fi_info, version: u32, reaches_memory: bool) -> Verdict {
    // SAFETY: what hints point to is there, or null, as the caller says.
    let kind = unsafe { hints.ep_attr.as_ref() }.map_or(FI_EP_UNSPEC, |ep| ep.r#type);
    check(is_among(hints.caps, capabilities_of(kind, reaches_memory)), "capabilities")?;
    let formats = [FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6];
    check(formats.contains(&hints.addr_format), "address format")?;
    // SAFETY: as the caller says; so for those below.
    if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
        accepts_endpoint(ep)?;
    }
    // SAFETY: see above.
    if let Some(tx) = unsafe { hints.tx_attr.as_ref() } {
        check(is_among(tx.caps, TRANSMIT | WHERE), "capabilities of transmission")?;
        check(is_among(tx.op_flags, TRANSMIT_FLAGS), "flags of transmission")?;
        check(is_among(tx.msg_order, ORDER), "order of transmission")?;
        check(tx.comp_order == 0, "order of completions")?;
        check(tx.inject_size <= MOST_INJECTED, "inject size")?;
        check(tx.size <= SIZE, "transmit size")?;
        check(tx.iov_limit <= MOST_PIECES && tx.rma_iov_limit <= 1, "pieces of a message")?;
    }
    // SAFETY: see above.
    if let Some(rx) = unsafe { hints.rx_attr.as_ref() } {
        check(is_among(rx.caps, RECEIVE | WHERE), "capabilities of reception")?;
        check(is_among(rx.op_flags, RECEIVE_FLAGS), "flags of reception")?;
        check(is_among(rx.msg_order, ORDER), "order of reception")?;
        check(rx.comp_order == 0, "order of completions")?;
        check(rx.size <= SIZE && rx.iov_limit <= MOST_PIECES, "size of reception")?;
    }
    // SAFETY: see above.
    if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
        accepts_domain(domain, version)?;
    }
    // SAFETY: see above.
    match unsafe { hints.fabric_attr.as_ref() } {
        Some(fabric) if !fabric.prov_name.is_null() => {
            // SAFETY: a name ends in zero.
            let name = unsafe { CStr::from_ptr(fabric.prov_name) };
            // Those that layer on this one hand their own name down with it: `landfall;ofi_rxm`.
            let mut names = name.to_bytes().split(|of| *of == b';');
            check(names.any(|name| name.eq_ignore_ascii_case(b"landfall")), "provider")
        }
        _ => Ok(()),
    }
}

fn accepts_endpoint(ep: &fi_ep_attr) -> Verdict {
    let is_known = |kind: &c_int| *kind == ep.r#type;
    let types = [FI_EP_UNSPEC, FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM];
    check(types.iter().any(is_known), "type of endpoint")?;
    let is_spoken = ep.protocol == FI_PROTO_UNSPEC
        || types.iter().any(|kind| protocol_of(*kind) == ep.protocol);
    check(is_spoken, "protocol")?;
    check(ep.max_msg_size <= longest_of(ep.r#type), "message size")?;
    check(ep.msg_prefix_size == 0 && ep.auth_key_size == 0, "prefix or key")?;
    check(ep.max_order_waw_size == 0 && ep.max_order_war_size == 0, "order of writes")?;
    check(ep.tx_ctx_cnt <= 1 && ep.rx_ctx_cnt <= 1, "several contexts")
}

fn accepts_domain(domain: &fi_domain_attr, version: u32) -> Verdict {
    let progress = |wanted| wanted != FI_PROGRESS_AUTO;
    check(progress(domain.data_progress), "progress by itself")?;
    check(domain.mr_key_size <= KEY_SIZE, "size of keys")?;
    check(domain.cq_data_size <= 8, "size of data in completions")?;
    check(domain.mr_iov_limit <= 1, "pieces of registered memory")?;
    check(is_among(domain.caps, WHERE), "capabilities of the domain")?;
    check(domain.auth_key_size == 0, "key of the domain")?;
    // Before 1.5 basic registration was a mode of its own, in which we choose keys and
    // addresses are virtual.
    let is_old = version < fi_version(1, 5);
    check(!(is_old && domain.mr_mode == FI_MR_BASIC), "basic registration")
}

/// libfabric's number for a version.
pub(crate) const fn fi_version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// This many sends and receives a program may count on.
const SIZE: usize = 1024;
const KEY_SIZE: usize = 4;
/// No other provider speaks this: `FI_PROV_SPECIFIC` and a number.
const PROTOCOL: u32 = 1 << 31 | 0x1f;
/// The same between endpoints that are connected.
const CONNECTED_PROTOCOL: u32 = 1 << 31 | 0x20;

/// Datagrams are messages as others are.
const fn protocol_of(kind: c_int) -> u32 {
    if kind == FI_EP_MSG { CONNECTED_PROTOCOL } else { PROTOCOL }
}

/// What was asked for, as far as it decides what is offered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    caps: u64,
    kind: c_int,
    protocol: u32,
    longest: usize,
    mr_mode: c_int,
    op_flags: u64,
    receive_flags: u64,
    av_type: c_int,
    progress: c_int,
    threading: c_int,
}

impl Hints {
    /// # Safety
    /// As for [`accepts`].
    pub(crate) unsafe fn of(hints: Option<&fi_info>) -> Self {
        let Some(hints) = hints else { return Self::default() };
        // SAFETY: as the caller says; so for those below.
        let tx = unsafe { hints.tx_attr.as_ref() };
        // SAFETY: see above.
        let rx = unsafe { hints.rx_attr.as_ref() };
        // SAFETY: see above.
        let domain = unsafe { hints.domain_attr.as_ref() };
        // SAFETY: see above.
        let ep = unsafe { hints.ep_attr.as_ref() };
        Self {
            caps: hints.caps,
            kind: ep.map_or(FI_EP_UNSPEC, |ep| ep.r#type),
            protocol: ep.map_or(FI_PROTO_UNSPEC, |ep| ep.protocol),
            longest: ep.map_or(0, |ep| ep.max_msg_size),
            mr_mode: domain.map_or(0, |domain| domain.mr_mode),
            op_flags: tx.map_or(0, |tx| tx.op_flags),
            receive_flags: rx.map_or(0, |rx| rx.op_flags),
            av_type: domain.map_or(0, |domain| domain.av_type),
            progress: domain.map_or(0, |domain| domain.control_progress),
            threading: domain.map_or(0, |domain| domain.threading),
        }
    }
}

impl Hints {
    /// The types of endpoints that are offered, the one first that most programs want.
    fn kinds(self, reaches_memory: bool) -> impl Iterator<Item = c_int> {
        let is_any = |asked: i64, offered: i64| asked == 0 || asked == offered;
        let fits = move |kind: &c_int| {
            is_any(self.kind.into(), (*kind).into())
                && is_any(self.protocol.into(), protocol_of(*kind).into())
                && is_among(self.caps, capabilities_of(*kind, reaches_memory))
                && self.longest <= longest_of(*kind)
        };
        [FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM].into_iter().filter(fits)
    }
}

/// What is offered for a connection that was asked for, between these two addresses. Nothing
/// where there is no memory.
pub(crate) fn connection(
    (from, to): (SocketAddr, SocketAddr),
    asked: Hints,
    version: u32,
    settings: &Settings,
) -> Option<*mut fi_info> {
    let local = settings.locals().into_iter().find(|local| local.ip == from.ip())?;
    let caps = capabilities_of(FI_EP_MSG, settings.reaches_memory());
    offer(&Route { local, from, to: Some(to) }, asked, (FI_EP_MSG, caps), version)
}

/// Where an offer leads.
#[derive(Clone, Debug)]
struct Route {
    local: Local,
    from: SocketAddr,
    to: Option<SocketAddr>,
}

/// The interfaces that lead to an address, or from one.
fn routes(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    given: (Option<SocketAddr>, Option<SocketAddr>),
    settings: &Settings,
) -> Vec<Route> {
    let wanted = settings.interface.as_deref();
    let is_wanted = |local: &Local| {
        wanted.is_none_or(|wanted| local.interface == wanted || local.ip.to_string() == wanted)
    };
    let is_source = flags & crate::abi::FI_SOURCE != 0;
    let named = (node.is_some() || service.is_some())
        .then(|| resolve(node, service, flags & FI_NUMERICHOST != 0));
    let (from, to) = match (named, is_source) {
        (Some(named), true) => (named, given.1),
        (Some(named), false) => {
            let Some(to) = named.into_iter().find(|to| !to.ip().is_unspecified()) else {
                return Vec::new();
            };
            (given.0.into_iter().collect(), Some(to))
        }
        (None, _) => (given.0.into_iter().collect(), given.1),
    };
    let chosen = |local: &Local| -> Option<u16> {
        if from.is_empty() {
            return Some(0);
        }
        let is_it = |address: &&SocketAddr| {
            let ip = address.ip();
            ip == local.ip || (ip.is_unspecified() && ip.is_ipv4() == local.ip.is_ipv4())
        };
        from.iter().find(is_it).map(SocketAddr::port)
    };
    let leads = |local: &Local| to.is_none_or(|to| leads_to(local, to.ip()));
    let route = |local: Local| {
        let port = chosen(&local)?;
        leads(&local).then(|| Route { from: local.with_port(port), to, local })
    };
    settings.locals().into_iter().filter(is_wanted).filter_map(route).collect()
}

/// Can a peer with this address be reached from there?
fn leads_to(local: &Local, to: IpAddr) -> bool {
    local.ip.is_ipv4() == to.is_ipv4() && local.ip.is_loopback() == to.is_loopback()
}

/// What `fi_getinfo` says: a list of offers, or an error number.
///
/// # Safety
/// The hints are as for [`accepts`].
pub(crate) unsafe fn offers(
    version: u32,
    (node, service): (Option<&str>, Option<&str>),
    flags: u64,
    hints: Option<&fi_info>,
) -> Result<*mut fi_info, c_int> {
    let settings = Settings::of_environment().map_err(|what| {
        tell(format_args!("{what}"));
        FI_EINVAL
    })?;
    let reaches_memory = settings.reaches_memory();
    if let Some(hints) = hints {
        // SAFETY: the caller's promise.
        unsafe { accepts(hints, version, reaches_memory) }.map_err(|what| {
            tell(format_args!("not offered: {what}"));
            FI_ENODATA
        })?;
    }
    // SAFETY: addresses of hints are as long as their family says.
    let given = hints.map_or((None, None), |hints| unsafe {
        (crate::address::read(hints.src_addr), crate::address::read(hints.dest_addr))
    });
    // SAFETY: the caller's promise.
    let asked = unsafe { Hints::of(hints) };
    let format = hints.map_or(FI_FORMAT_UNSPEC, |hints| hints.addr_format);
    let mut first = std::ptr::null_mut();
    let mut last: *mut *mut fi_info = &raw mut first;
    for route in routes(node, service, flags, given, &settings) {
        // SAFETY: the caller's promise.
        let is_asked = hints.is_none_or(|hints| unsafe { is_named(hints, &route.local) });
        let is_format =
            matches!(format, FI_FORMAT_UNSPEC | FI_SOCKADDR) || format == format_of(&route.from);
        if !is_asked || !is_format {
            continue;
        }
        for kind in asked.kinds(reaches_memory) {
            let kind = (kind, capabilities_of(kind, reaches_memory));
            let offer = offer(&route, asked, kind, version).ok_or(FI_ENOMEM)?;
            // SAFETY: the place of the list's end, and an entry that was made just now.
            unsafe {
                *last = offer;
                last = &raw mut (*offer).next;
            }
        }
    }
    if first.is_null() { Err(FI_ENODATA) } else { Ok(first) }
}

/// Says why something is not offered, to users who ask libfabric to.
fn tell(what: std::fmt::Arguments<'_>) {
    let level = std::env::var("FI_LOG_LEVEL").unwrap_or_default();
    if matches!(level.as_str(), "warn" | "trace" | "info" | "debug") {
        eprintln!("landfall: {what}");
    }
}

/// Does an interface have the names of domain and fabric that hints have?
///
/// # Safety
/// As for [`accepts`].
unsafe fn is_named(hints: &fi_info, local: &Local) -> bool {
    let is = |name: *mut c_char, is: &str| {
        // SAFETY: names of hints end in zero.
        name.is_null() || unsafe { CStr::from_ptr(name) }.to_bytes() == is.as_bytes()
    };
    // SAFETY: as the caller says; so for the next.
    let domain = unsafe { hints.domain_attr.as_ref() };
    // SAFETY: see above.
    let fabric = unsafe { hints.fabric_attr.as_ref() };
    domain.is_none_or(|domain| is(domain.name, &local.interface))
        && fabric.is_none_or(|fabric| is(fabric.name, &local.network()))
}

/// Memory that libfabric frees, with a value in it. Nothing where there is none.
fn allocate<T>(value: T) -> Option<*mut T> {
    // SAFETY: a length that is not zero.
    let place = unsafe { libc::malloc(size_of::<T>().max(1)) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: room for one, aligned as `malloc` aligns.
    unsafe { place.write(value) };
    Some(place)
}

fn allocate_text(text: &str) -> Option<*mut c_char> {
    let text = CString::new(text).ok()?;
    // SAFETY: a text that ends in zero.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    (!copy.is_null()).then_some(copy)
}

/// Memory that is not there is a reason to give up; what was allocated before is lost then.
fn offer(
    route: &Route,
    asked: Hints,
    (kind, capabilities): (c_int, u64),
    version: u32,
) -> Option<*mut fi_info> {
    let (from, to) = (&route.from, route.to.as_ref());
    // What costs something is there only where it is asked for.
    let offered = capabilities & !ON_REQUEST;
    let caps = match asked.caps & KINDS {
        0 => offered | asked.caps,
        some => (offered & !KINDS) | some | asked.caps,
    };
    let tx_attr = allocate(fi_tx_attr {
        caps: caps & TRANSMIT,
        mode: 0,
        op_flags: asked.op_flags,
        msg_order: ORDER,
        comp_order: 0,
        inject_size: MOST_INJECTED,
        size: SIZE,
        iov_limit: MOST_PIECES,
        rma_iov_limit: 1,
        tclass: 0,
    })?;
    let rx_attr = allocate(fi_rx_attr {
        caps: caps & RECEIVE,
        mode: 0,
        op_flags: asked.receive_flags,
        msg_order: ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: SIZE,
        iov_limit: MOST_PIECES,
    })?;
    let fabric_attr = allocate(fi_fabric_attr {
        fabric: std::ptr::null_mut(),
        name: allocate_text(&route.local.network())?,
        prov_name: std::ptr::null_mut(),
        prov_version: crate::VERSION,
        api_version: version,
    })?;
    let address = |address: &SocketAddr| allocate(to_raw(address)).map(|raw| raw.cast());
    allocate(fi_info {
        next: std::ptr::null_mut(),
        caps,
        mode: 0,
        addr_format: format_of(from),
        src_addrlen: len_of(from),
        dest_addrlen: to.map_or(0, len_of),
        src_addr: address(from)?,
        dest_addr: to.map_or(Some(std::ptr::null_mut()), address)?,
        handle: std::ptr::null_mut(),
        tx_attr,
        rx_attr,
        ep_attr: allocate(endpoint(kind))?,
        domain_attr: allocate(LaterDomain::new(domain(route, asked, version)?))?.cast(),
        fabric_attr,
        nic: std::ptr::null_mut(),
    })
}

/// The attributes of a domain as libfabric 2.6 has them: what is behind those of 1.17 is read by
/// later versions, which copy offers at their own length.
#[repr(C)]
struct LaterDomain {
    known: fi_domain_attr,
    max_ep_auth_key: usize,
    max_group_id: u32,
    max_cntr_value: u64,
    max_err_cntr_value: u64,
    /// Room for versions to come.
    reserved: [u64; 8],
}

impl LaterDomain {
    const fn new(known: fi_domain_attr) -> Self {
        Self {
            known,
            max_ep_auth_key: 0,
            max_group_id: 0,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            reserved: [0; 8],
        }
    }
}

const fn endpoint(kind: c_int) -> fi_ep_attr {
    fi_ep_attr {
        r#type: kind,
        protocol: protocol_of(kind),
        protocol_version: 1,
        max_msg_size: longest_of(kind),
        msg_prefix_size: 0,
        max_order_raw_size: MOST_MESSAGE,
        max_order_war_size: 0,
        max_order_waw_size: 0,
        mem_tag_format: u64::MAX / 3 * 2,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
    }
}

fn domain(route: &Route, asked: Hints, version: u32) -> Option<fi_domain_attr> {
    let is_old = version < fi_version(1, 5);
    let progress = match asked.progress {
        FI_PROGRESS_MANUAL => FI_PROGRESS_MANUAL,
        _ => FI_PROGRESS_AUTO,
    };
    // Whatever a program promises: it is safe without.
    let threading = match asked.threading {
        FI_THREAD_UNSPEC => FI_THREAD_SAFE,
        asked => asked,
    };
    Some(fi_domain_attr {
        domain: std::ptr::null_mut(),
        name: allocate_text(&route.local.interface)?,
        threading,
        control_progress: progress,
        data_progress: FI_PROGRESS_MANUAL,
        resource_mgmt: FI_RM_ENABLED,
        av_type: asked.av_type,
        mr_mode: if is_old || asked.mr_mode == FI_MR_SCALABLE { FI_MR_SCALABLE } else { 0 },
        mr_key_size: KEY_SIZE,
        cq_data_size: 8,
        cq_cnt: 1 << 10,
        ep_cnt: 1 << 10,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: 1 << 10,
        mr_iov_limit: 1,
        caps: WHERE,
        mode: 0,
        auth_key: std::ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: 1 << 16,
        tclass: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_offered_that_can_do_what_is_asked() {
        let kinds = |asked: Hints| asked.kinds(true).collect::<Vec<_>>();
        let of = |caps| Hints { caps, ..Hints::default() };
        assert_eq!(kinds(Hints::default()), [FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM]);
        assert_eq!(kinds(of(FI_MSG | FI_SEND)), [FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM]);
        assert_eq!(kinds(of(FI_RMA | FI_REMOTE_READ)), [FI_EP_RDM, FI_EP_MSG]);
        assert_eq!(kinds(of(FI_TAGGED | FI_DIRECTED_RECV)), [FI_EP_RDM]);
        assert_eq!(kinds(of(FI_MSG | FI_SOURCE)), [FI_EP_RDM, FI_EP_DGRAM]);
        let named = Hints { kind: FI_EP_MSG, ..Hints::default() };
        assert_eq!(kinds(named), [FI_EP_MSG]);
        assert!(kinds(Hints { caps: FI_SOURCE, ..named }).is_empty());
        let spoken = Hints { protocol: CONNECTED_PROTOCOL, ..Hints::default() };
        assert_eq!(kinds(spoken), [FI_EP_MSG]);
        let long = Hints { longest: 1 << 20, ..Hints::default() };
        assert_eq!(kinds(long), [FI_EP_RDM, FI_EP_MSG]);
        // Where no memory is reached nobody gets what they have asked it for.
        let without = |asked: Hints| asked.kinds(false).collect::<Vec<_>>();
        assert_eq!(without(of(FI_MSG | FI_TAGGED)), [FI_EP_RDM, FI_EP_MSG]);
        for caps in [FI_RMA, FI_ATOMIC, FI_REMOTE_READ, FI_WRITE] {
            assert!(without(of(FI_MSG | caps)).is_empty(), "{caps:#x}");
        }
    }
}
