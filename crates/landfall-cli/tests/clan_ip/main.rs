//! `landfall clan-ip` as people use it: three hosts, whose programs know nothing of it.
//! As an ordinary user these tests skip with one line.
//!
//! | file | what it is |
//! | --- | --- |
//! | `hosts` | three hosts with cables between them, and programs that run there |
//! | `flow` | cookies, packets in flight, connections on demand |
//! | `web` | curl and iperf3; a host that is killed and comes again |
//! | `ssh` | OpenSSH: a command, and files there and back |
//! | `nfs` | a file tree of nfs-ganesha, copied by libnfs at two hosts at a time |

mod flow;
mod hosts;
mod nfs;
mod ssh;
mod web;
