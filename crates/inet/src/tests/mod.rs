//! Every header against second opinions (etherparse, smoltcp), against vectors, and
//! against arbitrary bytes.

mod foreign;
mod second;
mod vectors;
