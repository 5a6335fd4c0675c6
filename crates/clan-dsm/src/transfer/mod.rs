//! What travels, and how it is cut into frames.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `load` | one frame while it is filled; what is told once writes have arrived: barriers, and writes from memory |
//! | `pio` | what the program wrote, waiting in order |
//! | `reads` | what is asked of another host: remote reads, of the reader and of who is read; read-modify-write operations on words |
//! | `dma` | queues of requests to the DMA engine, and their turns |

pub(crate) mod dma;
pub(crate) mod load;
pub(crate) mod pio;
pub(crate) mod reads;
