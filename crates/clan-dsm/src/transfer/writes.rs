//! Writes from memory that stand among those of the program: how much of each
//! has not arrived yet.

use landfall_tables::Table;

use crate::error::Ended;
use crate::ids::WriteId;

#[derive(Clone, Copy, Debug)]
struct Write {
    left: u64,
    result: Result<(), Ended>,
}

/// The writes from memory that are under way.
#[derive(Debug)]
pub(crate) struct Writes {
    table: Table<Write>,
}

impl Writes {
    pub(crate) const fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// One more, of so many bytes.
    pub(crate) fn begin(&mut self, len: u64) -> Option<WriteId> {
        self.table.insert(Write { left: len, result: Ok(()) }).map(WriteId::new)
    }

    /// It never began.
    pub(crate) fn forget(&mut self, id: WriteId) {
        if self.table.named(id.index, id.generation).is_some() {
            self.table.remove(id.index);
        }
    }

    /// So many bytes of it need no more care, since they arrived or since that is
    /// over. With the last of them it is done.
    pub(crate) fn done(
        &mut self,
        id: WriteId,
        len: u64,
        result: Result<(), Ended>,
    ) -> Option<Result<(), Ended>> {
        let write = self.table.named_mut(id.index, id.generation)?;
        write.left = write.left.saturating_sub(len);
        write.result = write.result.and(result);
        if write.left > 0 {
            return None;
        }
        self.table.remove(id.index).map(|write| write.result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_with_its_last_byte_and_well_if_all_of_them_are() {
        let mut writes = Writes::new(2);
        let (good, bad) = (writes.begin(10).unwrap(), writes.begin(10).unwrap());
        assert_eq!(writes.begin(1), None, "there are two");
        assert_eq!(writes.done(good, 4, Ok(())), None);
        assert_eq!(writes.done(bad, 4, Err(Ended::Silent)), None);
        assert_eq!(writes.done(good, 6, Ok(())), Some(Ok(())));
        assert_eq!(writes.done(good, 6, Ok(())), None, "it is over");
        assert_eq!(writes.done(bad, 6, Ok(())), Some(Err(Ended::Silent)));
    }
}
