//! The commands between `MULTI` and `EXEC`.

use super::command_parser::Command;
use std::ops::Range;

/// The maximum size of all commands: the bytes of their arguments, and where each one is.
const MAX_SIZE: usize = 4 << 20;

/// Queued commands. They are executed one after another; other clients' commands may come in between.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    bytes: Vec<u8>,
    arguments: Vec<Range<usize>>,
    /// The arguments of each command.
    commands: Vec<Range<usize>>,
    /// The size of all commands.
    size: usize,
    /// Whether a command was invalid, so that none is executed.
    pub(super) is_aborted: bool,
}

/// A transaction is too large.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Transaction {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command.
    pub(super) fn push(&mut self, command: Command<'_>) -> Result<(), TooLarge> {
        self.size += command.size() + size_of::<Range<usize>>();
        if self.size > MAX_SIZE {
            // It can't be executed any more.
            *self = Self { is_aborted: true, ..Self::default() };
            return Err(TooLarge);
        }
        let first = self.arguments.len();
        for argument in command.args(0) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.arguments.push(start..self.bytes.len());
        }
        self.commands.push(first..self.arguments.len());
        Ok(())
    }

    /// The command at `index`.
    pub(super) fn command(&self, index: usize) -> Command<'_> {
        let arguments = self.commands.get(index).and_then(|range| self.arguments.get(range.clone()));
        Command::joined(&self.bytes, arguments.unwrap_or_default())
    }
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
            let (mut transaction, mut most) = (Transaction::default(), 0);
            while transaction.push(Command::joined(bytes, &ranges)).is_ok() {
                let ranges = transaction.arguments.capacity() + transaction.commands.capacity();
                most = transaction.bytes.capacity() + ranges * size_of::<Range<usize>>();
            }
            // Vectors grow to twice of what they contain.
            assert!(most > MAX_SIZE / 2 && most <= MAX_SIZE * 2, "{most}");
            assert!(transaction.is_aborted && transaction.bytes.capacity() == 0);
        }
    }
}
