//! What a host on IP remembers and answers beside its transports.
//!
//! | module | what it knows |
//! | --- | --- |
//! | [`neighbours`] | which station has an address: ARP and neighbour discovery |
//! | [`conflicts`] | whether an address is another's |
//! | [`dhcp`], [`autoconf`] | addresses that servers give, and those that routers make possible |
//! | [`groups`] | which groups are listened to, and what is to be said of that |
//! | [`reassembly`] | the pieces of packets, until they are whole |
//! | [`path_mtu`] | how much a way carries in one piece |
//! | [`size_search`] | how that is found where nobody says |
//! | [`answer`] | the frames that are answers: echoes, errors, "I have it" |
//!
//! Plain state that the adapter owns: all of it bounded by configuration, all of
//! it told what time it is. What does not live here: I/O, the decision which
//! addresses are ours, and the formats ([`wire`](crate::wire)).

pub mod answer;
pub mod autoconf;
pub mod conflicts;
pub mod dhcp;
pub mod groups;
pub mod neighbours;
pub mod path_mtu;
pub mod reassembly;
pub mod size_search;
