//! Byte streams of the family: over queue pairs and over STP.

use std::io::{self, Read};
use std::net::Shutdown;
use std::time::Duration;

use sockets_compat::{QpStream, StpStream};

use super::{Stream, write_both};

of_socket!(QpStream);
of_socket!(StpStream);
