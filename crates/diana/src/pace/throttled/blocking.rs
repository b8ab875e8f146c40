//! `std::io`, on a thread that may block.

use super::super::pay::give_back;
use super::super::piece::take_piece;
use super::Throttled;
use std::io::{Read, Result, Write};

impl<T: Read> Read for Throttled<T> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let Some(reading) = &mut self.reading else { return self.io.read(into) };
        if reading.rest().is_empty() {
            reading.fill(into.len(), |buffer| self.io.read(buffer))?;
        }
        let wanted = reading.wanted(into.len());
        if wanted == 0 {
            return Ok(0);
        }
        let receipt = take_piece(&reading.till.limiter, wanted)?;
        let passed = reading.pass(receipt.cost().get(), into.len());
        into.split_at_mut(passed.len()).0.copy_from_slice(passed);
        Ok(passed.len())
    }
}

impl<T: Write> Write for Throttled<T> {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        let Some(till) = &self.writing else { return self.io.write(from) };
        if from.is_empty() {
            return self.io.write(from);
        }
        let receipt = take_piece(&till.limiter, from.len())?;
        let length = usize::try_from(receipt.cost().get()).unwrap_or(usize::MAX);
        let written = self.io.write(from.get(..length).unwrap_or(from));
        let moved = written.as_ref().map_or(0, |moved| *moved);
        give_back(&till.limiter, &receipt, u64::try_from(moved).unwrap_or(u64::MAX));
        written
    }

    fn flush(&mut self) -> Result<()> {
        self.io.flush()
    }
}
