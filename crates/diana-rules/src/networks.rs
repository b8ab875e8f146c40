//! Sets of addresses and networks, looked up by the longest prefix.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixSet;
use std::fmt;
use std::net::IpAddr;

/// Addresses and networks.
#[derive(Clone, Default)]
pub(crate) struct Networks {
    v4: PrefixSet<Ipv4Net>,
    v6: PrefixSet<Ipv6Net>,
}

/// Parses an address or a network: `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32`. An IPv4-mapped IPv6 network, such as
/// `::ffff:10.0.0.0/104`, is converted to IPv4, as addresses are for lookup.
pub fn parse_network(text: &str) -> Option<IpNet> {
    match text.parse::<IpNet>() {
        Ok(network) => Some(unmapped(network.trunc())),
        Err(_) => text.parse::<IpAddr>().ok().map(|address| IpNet::from(canonical(address))),
    }
}

impl Networks {
    pub(crate) fn insert(&mut self, network: IpNet) {
        match network {
            IpNet::V4(network) => {
                self.v4.insert(network);
            }
            IpNet::V6(network) => {
                self.v6.insert(network);
            }
        }
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match canonical(address) {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address)).is_some(),
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address)).is_some(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns `true` if the set contains every address.
    pub(crate) fn is_everything(&self) -> bool {
        self.v4.contains(&Ipv4Net::default()) && self.v6.contains(&Ipv6Net::default())
    }

    fn iter(&self) -> impl Iterator<Item = IpNet> {
        let (v4, v6) = (self.v4.iter(), self.v6.iter());
        v4.map(IpNet::V4).chain(v6.map(IpNet::V6))
    }
}

/// The length of the prefix of IPv4-mapped IPv6 addresses.
const MAPPED: u8 = 96;

fn unmapped(network: IpNet) -> IpNet {
    let address = match network.addr() {
        IpAddr::V6(address) => address.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    };
    let length = network.prefix_len().checked_sub(MAPPED);
    let mapped = address.zip(length).and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    mapped.map_or(network, IpNet::V4)
}

/// Converts an IPv4-mapped IPv6 address to IPv4, so that a client has one address.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let mut set = Self::default();
        networks.into_iter().for_each(|network| set.insert(network));
        set
    }
}

impl PartialEq for Networks {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, network) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if network.prefix_len() == network.max_prefix_len() {
                write!(f, "{comma}{}", network.addr())?;
            } else {
                write!(f, "{comma}{network}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_ipv4_however_it_is_written() {
        for (written, normalised) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:10.0.0.7/128", "10.0.0.7/32"),
            ("::ffff:10.0.0.7", "10.0.0.7/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::ffff:0:0/95", "::fffe:0:0/95"),
        ] {
            assert_eq!(parse_network(written), normalised.parse().ok(), "{written}");
        }
        let networks = parse_network("::ffff:10.0.0.0/104").into_iter().collect::<Networks>();
        for (address, expected) in [("10.9.9.9", true), ("::ffff:10.9.9.9", true), ("11.0.0.1", false)] {
            assert_eq!(address.parse().ok().map(|address| networks.contains(address)), Some(expected), "{address}");
        }
    }
}
