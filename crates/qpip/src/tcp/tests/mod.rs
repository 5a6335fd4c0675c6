//! Two connections, a wire between them that loses, doubles, reorders and cuts,
//! and memory that is really copied: what is said here is held to what came.

mod marks;
mod messages;
mod pair;
mod states;
