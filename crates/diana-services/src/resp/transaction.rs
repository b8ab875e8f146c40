//! The commands between `MULTI` and `EXEC`.

use super::command_parser::Command;
use diana_net::{ReservedMemory, TotalMemory};
use std::ops::Range;
use std::sync::Arc;

/// The maximum size of all commands: the bytes of their arguments, and where each one is.
const MAX_SIZE: usize = 4 << 20;

/// Queued commands. They are executed one after another; other clients' commands may come in between.
#[derive(Debug)]
pub(super) struct Transaction {
    bytes: Vec<u8>,
    arguments: Vec<Range<usize>>,
    /// The arguments of each command.
    commands: Vec<Range<usize>>,
    /// The size of all commands.
    size: usize,
    /// Counts the capacities of the three.
    memory: ReservedMemory,
    /// Whether a command was invalid, so that none is executed.
    pub(super) is_aborted: bool,
}

/// The reason why a command can't be queued. The transaction is aborted, and its memory is freed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// The transaction is too large.
    TooLarge,
    /// The clients of all connections use too much memory.
    NoMemory,
}

impl Transaction {
    /// Creates an empty transaction, whose memory counts in `total`.
    pub(super) fn new(total: &Arc<TotalMemory>) -> Self {
        Self {
            bytes: Vec::new(),
            arguments: Vec::new(),
            commands: Vec::new(),
            size: 0,
            memory: ReservedMemory::none(total),
            is_aborted: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command.
    pub(super) fn push(&mut self, command: Command<'_>) -> Result<(), NotQueued> {
        self.size += command.size() + size_of::<Range<usize>>();
        if self.size > MAX_SIZE {
            return Err(self.abort(NotQueued::TooLarge));
        }
        let (bytes, arguments) = (command.args(0).map(<[u8]>::len).sum(), command.len());
        let (bytes, arguments) = (grown(&self.bytes, bytes), grown(&self.arguments, arguments));
        let commands = grown(&self.commands, 1);
        if !self.memory.resize(bytes + (arguments + commands) * size_of::<Range<usize>>()) {
            return Err(self.abort(NotQueued::NoMemory));
        }
        self.bytes.reserve_exact(bytes - self.bytes.len());
        self.arguments.reserve_exact(arguments - self.arguments.len());
        self.commands.reserve_exact(commands - self.commands.len());
        let first = self.arguments.len();
        for argument in command.args(0) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.arguments.push(start..self.bytes.len());
        }
        self.commands.push(first..self.arguments.len());
        Ok(())
    }

    /// Frees the memory of all commands: they can't be executed any more.
    fn abort(&mut self, why: NotQueued) -> NotQueued {
        (self.bytes, self.arguments, self.commands, self.is_aborted) = (Vec::new(), Vec::new(), Vec::new(), true);
        // Less memory is always available.
        let _ = self.memory.resize(0);
        why
    }

    /// Returns the command at `index`.
    pub(super) fn command(&self, index: usize) -> Command<'_> {
        let arguments = self.commands.get(index).and_then(|range| self.arguments.get(range.clone()));
        Command::joined(&self.bytes, arguments.unwrap_or_default())
    }
}

/// Returns the capacity of a vector with so many more elements: it is doubled if it does not suffice.
fn grown<T>(vector: &Vec<T>, more: usize) -> usize {
    let length = vector.len() + more;
    if length <= vector.capacity() { vector.capacity() } else { length.max(vector.capacity() * 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_whatever_the_commands_are() {
        let long = vec![b'x'; 60_000];
        for (bytes, ranges) in [
            (&b"PING"[..], vec![0..2, 2..4]),
            (b"PING", [vec![0..2, 2..4], vec![4..4; 1_022]].concat()),
            (&long, vec![0..60_000; 4]),
            (&long, vec![0..200; 1_024]),
        ] {
            let (mut transaction, mut most) = (Transaction::new(&Arc::new(TotalMemory::new(usize::MAX))), 0);
            while transaction.push(Command::joined(bytes, &ranges)).is_ok() {
                let ranges = transaction.arguments.capacity() + transaction.commands.capacity();
                most = transaction.bytes.capacity() + ranges * size_of::<Range<usize>>();
            }
            // Vectors grow to twice of what they contain.
            assert!(most > MAX_SIZE / 2 && most <= MAX_SIZE * 2, "{most}");
            assert!(transaction.is_aborted && transaction.bytes.capacity() == 0);
        }
    }

    #[test]
    fn the_memory_of_all_transactions_is_bounded_and_freed() {
        let total = Arc::new(TotalMemory::new(1 << 20));
        let mut transactions = (0..4).map(|_| Transaction::new(&total)).collect::<Vec<_>>();
        let (long, ranges) = (vec![b'x'; 60_000], [0..30_000, 30_000..60_000]);
        let refused = (0..100).find_map(|index| transactions[index % 4].push(Command::joined(&long, &ranges)).err());
        assert_eq!(refused, Some(NotQueued::NoMemory));
        assert_eq!(transactions.iter().filter(|transaction| transaction.is_aborted).count(), 1);
        let used = |transaction: &Transaction| transaction.bytes.capacity();
        assert!((1 << 19..1 << 20).contains(&transactions.iter().map(used).sum::<usize>()));
        drop(transactions);
        assert!(total.reserve(1 << 20).is_some());
    }
}
