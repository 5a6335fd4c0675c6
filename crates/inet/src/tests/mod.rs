//! Every header against second opinions (etherparse, smoltcp), against vectors, and
//! against arbitrary bytes.

mod flow;
mod foreign;
mod hosts;
mod second;
mod vectors;
