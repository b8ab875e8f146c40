//! A map by name: compares linearly for a few names, hashes for many.

use hashbrown::HashMap;

/// Up to this number, comparing is faster than hashing.
const FEW: usize = 4;

/// Values by name.
#[derive(Debug)]
pub(super) struct NameMap<T> {
    few: Vec<(Box<str>, T)>,
    many: HashMap<Box<str>, T>,
}

impl<T> Default for NameMap<T> {
    fn default() -> Self {
        Self { few: Vec::new(), many: HashMap::new() }
    }
}

impl<T: Default> NameMap<T> {
    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        if self.many.is_empty() {
            return self.few.iter().find(|(known, _)| **known == *name).map(|(_, value)| value);
        }
        self.many.get(name)
    }

    /// Returns the value of this name; adds it if it is missing.
    pub(super) fn get_or_add(&mut self, name: &str) -> &mut T {
        if self.many.is_empty() {
            let known = self.few.iter().position(|(known, _)| **known == *name);
            if known.is_none() && self.few.len() == FEW {
                self.many.extend(self.few.drain(..));
                return self.many.entry(name.into()).or_default();
            }
            let index = known.unwrap_or_else(|| {
                self.few.push((name.into(), T::default()));
                self.few.len() - 1
            });
            return &mut self.few[index].1;
        }
        self.many.entry(name.into()).or_default()
    }

    /// Returns all values with their names, if there are only a few; else none.
    #[inline]
    pub(super) fn few(&self) -> &[(Box<str>, T)] {
        &self.few
    }

    /// Returns `true` if there are many values.
    pub(super) fn is_many(&self) -> bool {
        !self.many.is_empty()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.few.iter_mut().map(|(_, value)| value).chain(self.many.values_mut())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }
}
