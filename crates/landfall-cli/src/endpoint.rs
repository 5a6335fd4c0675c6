//! The endpoint of STP that a service or a client has of its own.

use std::path::PathBuf;

use anyhow::Result;
use landfall::stp::{Endpoint, Transport, blocking, read_preshared_key};

/// How what leaves the host is encrypted.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SecurityArgs {
    /// For STP: a file of 32 random bytes that both ends have, readable by its owner alone
    /// [default: each end proves itself by the identity of its user]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// For STP: encrypt nothing; the other end has to do the same
    #[arg(long, conflicts_with = "key_file")]
    plaintext: bool,
}

impl SecurityArgs {
    pub(crate) fn bind(&self, transport: Transport) -> Result<Endpoint> {
        let builder = Endpoint::builder().path(transport);
        let builder = match &self.key_file {
            Some(file) => builder.preshared_key(read_preshared_key(file)?),
            None if self.plaintext => builder.plaintext(),
            None => builder,
        };
        Ok(builder.bind()?)
    }
}

/// Lets connections that are ending come to their ends.
pub(crate) fn see_off(endpoint: &Endpoint) {
    blocking::Endpoint::from(endpoint.clone()).close();
}
