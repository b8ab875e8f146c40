//! A line of `CLUSTER NODES`.

use std::io;
use std::ops::RangeInclusive;

/// A node's report on another node, or on itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) port: u16,
    /// Whether the reporting node describes itself.
    pub(super) is_myself: bool,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    /// Of several claims to a slot, the highest epoch is the latest.
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Node {
    /// Parses the output of `CLUSTER NODES`.
    pub(super) fn parse_all(text: &str) -> io::Result<Vec<Self>> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| Self::parse(line).ok_or_else(|| io::Error::other(format!("unknown format: {line}")))).collect()
    }

    /// `ID IP:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOT...`
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let id = fields.next()?.to_owned();
        let (address, _) = fields.next()?.split_once('@')?;
        let port = address.rsplit_once(':')?.1.parse().ok()?;
        let is_myself = fields.next()?.split(',').any(|flag| flag == "myself");
        let master = Some(fields.next()?).filter(|&master| master != "-").map(str::to_owned);
        let epoch = fields.nth(2)?.parse().ok()?;
        // After the link state; slots in brackets are being moved.
        let slots = fields.skip(1).filter(|slots| !slots.starts_with('[')).map(parse_slots).collect::<Option<_>>()?;
        Some(Self { id, port, is_myself, master, epoch, slots })
    }

    pub(super) fn is_master(&self) -> bool {
        self.master.is_none()
    }

    pub(super) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }

    pub(super) fn slot_count(&self) -> usize {
        self.slots.iter().map(ExactSizeIterator::len).sum()
    }

    /// Makes the reports of two nodes comparable. Without their epochs: those propagate slower, and clients never see
    /// them.
    pub(super) fn clear_reporter(&mut self) {
        self.is_myself = false;
        self.epoch = 0;
    }
}

/// `7`, or `0-5460`.
fn parse_slots(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::Node;

    #[test]
    fn parses_ranges_and_single_slots_and_skips_migrating_ones() {
        let line = "ab12 127.0.0.1:7000@17000 myself,master - 0 0 3 connected 0-9 20 [21->-cd34]";
        let [node]: [Node; 1] = Node::parse_all(line).unwrap().try_into().unwrap();
        assert_eq!((node.id.as_str(), node.port, node.epoch), ("ab12", 7000, 3));
        assert!(node.is_myself && node.is_master());
        assert_eq!(node.slot_count(), 11);
        assert!(node.serves(9) && node.serves(20) && !node.serves(21));
    }

    #[test]
    fn a_replica_has_its_master() {
        let line = "cd34 127.0.0.1:7001@17001,host slave ab12 0 1 3 connected";
        let [node]: [Node; 1] = Node::parse_all(line).unwrap().try_into().unwrap();
        assert_eq!(node.master.as_deref(), Some("ab12"));
        assert_eq!(node.slot_count(), 0);
    }
}
