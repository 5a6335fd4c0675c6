//! Every header against a second opinion (etherparse), against vectors, and
//! against arbitrary bytes.

mod foreign;
mod hostile;
mod vectors;
