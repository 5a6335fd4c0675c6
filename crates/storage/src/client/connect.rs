//! Connections of a [`Client`], and what is asked without using an export.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_nbd::client::{
    Failure, Listed, Negotiation, Purpose, Security, Session, Step, Wanted,
};
use landfall_nbd::{ProtocolError, Replies};

use super::{Client, INPUT};
use crate::server::Input;
use crate::stream::Stream;

/// How long a server may take for its part of the negotiation.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client wants of a server.
///
/// ```
/// use landfall_storage::Replies;
/// use landfall_storage::client::Options;
///
/// let options = Options { replies: Replies::Structured, ..Options::export("disk") };
/// assert_eq!(options.name, "disk");
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the export.
    pub name: String,
    /// The most that is asked for.
    pub replies: Replies,
    /// TLS, and the name that the server's certificate has to have. Without it: none.
    #[cfg(feature = "tls")]
    pub tls: Option<(Arc<rustls::ClientConfig>, rustls::pki_types::ServerName<'static>)>,
}

impl Options {
    /// An export, with all that the server has.
    #[must_use]
    pub fn export(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            replies: Replies::Extended,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    fn wanted(&self, purpose: Purpose) -> Wanted {
        #[cfg(feature = "tls")]
        let security = if self.tls.is_some() { Security::Required } else { Security::None };
        #[cfg(not(feature = "tls"))]
        let security = Security::None;
        let wanted = Wanted::export(self.name.clone());
        Wanted { purpose, security, replies: self.replies, ..wanted }
    }

    #[cfg(feature = "tls")]
    fn secure(&self, stream: Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>> {
        let Some((config, name)) = &self.tls else {
            return Err(io::Error::other("TLS was not asked for"));
        };
        crate::stream::tls::connect(stream, config, name.clone())
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with TLS it is used")]
    fn secure(&self, _: Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>> {
        Err(io::Error::other("this program was built without TLS"))
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The stream does not come about, or breaks.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server does not give what is wanted.
    #[error(transparent)]
    Negotiation(#[from] Failure),
}

/// What a negotiation has led to.
enum Agreed {
    Session(Arc<dyn Stream>, Box<Session>, Input),
    Listed(Vec<Listed>),
}

fn negotiate(
    mut stream: Arc<dyn Stream>,
    options: &Options,
    purpose: Purpose,
) -> Result<Agreed, ConnectError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut input, mut negotiation) =
        (Input::new(INPUT), Negotiation::new(options.wanted(purpose)));
    let agreed = loop {
        let (used, step) = negotiation.handle(input.bytes())?;
        input.consume(used);
        if let Some(output) = negotiation.poll_output() {
            stream.write(&output, &[])?;
        }
        match step {
            Step::More if used > 0 => {}
            Step::More => {
                if !input.fill(&*stream)? {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            Step::StartTls => {
                if !input.bytes().is_empty() {
                    let early = ProtocolError::Malformed("bytes in the open before TLS");
                    return Err(Failure::Protocol(early).into());
                }
                stream = options.secure(stream)?;
                negotiation.secured();
                if let Some(output) = negotiation.poll_output() {
                    stream.write(&output, &[])?;
                }
            }
            Step::Transmission(session) | Step::Looked(session) => {
                break Agreed::Session(Arc::clone(&stream), Box::new(session), input);
            }
            Step::Listed(listed) => break Agreed::Listed(listed),
        }
    };
    stream.set_read_timeout(None)?;
    Ok(agreed)
}

/// The exports that a server lists.
///
/// # Errors
/// [`ConnectError`].
pub fn exports_of(stream: Arc<dyn Stream>, options: &Options) -> Result<Vec<Listed>, ConnectError> {
    match negotiate(stream, options, Purpose::List)? {
        Agreed::Listed(listed) => Ok(listed),
        Agreed::Session(..) => Err(io::Error::other("an export where a list was asked for").into()),
    }
}

/// What a server says of an export, and how it would answer, without using it.
///
/// # Errors
/// [`ConnectError`].
pub fn export_of(stream: Arc<dyn Stream>, options: &Options) -> Result<Session, ConnectError> {
    match negotiate(stream, options, Purpose::Look)? {
        Agreed::Session(_, session, _) => Ok(*session),
        Agreed::Listed(_) => Err(io::Error::other("a list where an export was asked for").into()),
    }
}

impl Client {
    /// Uses an export of the server at the other end of a stream.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(stream: Arc<dyn Stream>, options: &Options) -> Result<Self, ConnectError> {
        match negotiate(stream, options, Purpose::Use)? {
            Agreed::Session(stream, session, input) => Ok(Self::over(stream, *session, input)),
            Agreed::Listed(_) => Err(io::Error::other("a list instead of an export").into()),
        }
    }

    /// The same over the kernel's TCP.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_tcp(
        address: impl ToSocketAddrs,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::connect(Arc::new(stream), options)
    }

    /// The same by a path of this host.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_unix(path: &Path, options: &Options) -> Result<Self, ConnectError> {
        Self::connect(Arc::new(UnixStream::connect(path)?), options)
    }
}
