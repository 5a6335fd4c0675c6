//! The program as people use it, as one program of tests; but `signals`, which looks at what
//! the whole machine has before and after, is one of its own.

mod capture;
mod clan_ip;
mod commands;
mod common;
mod connections;
mod decrypt;
mod files;
mod nbd;
mod paper;
mod perf;
mod perf_network;
mod reproduce;
mod run;
mod serve;
mod services;
mod transfer;
#[path = "../../lab/src/xml.rs"]
mod xml;
