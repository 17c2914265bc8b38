//! The Merkle tree of RFC 6962: a log appends to it, and a device checks it.

use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The hash of a leaf (RFC 6962, section 2.1).
pub fn leaf_hash(entry: &[u8]) -> Hash {
    Sha256::new_with_prefix([0]).chain_update(entry).finalize().into()
}

/// The hash of an inner node (RFC 6962, section 2.1).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new_with_prefix([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of a tree of `size` leaves, the last of which is `leaf`. `path` has the sibling hashes
/// on the path from the leaf to the root. `None` if that path has another number of siblings.
///
/// All siblings of the last leaf's path are on its left. There is one for each 1 among the binary
/// digits of the leaf's index, `size - 1`.
pub fn root_with_last(leaf: Hash, size: u64, path: &[Hash]) -> Option<Hash> {
    let nodes = size.checked_sub(1)?.count_ones();
    (usize::try_from(nodes) == Ok(path.len()))
        .then(|| path.iter().fold(leaf, |root, left| node_hash(left, &root)))
}

/// A tree, stored as the roots of the largest perfect trees in it. That is enough to append leaves.
///
/// ```
/// use bandana_shared::transparency::{Frontier, leaf_hash, root_with_last};
///
/// let mut tree = Frontier::default();
/// let path = [b"a", b"b", b"c"].map(|entry| {
///     let path = tree.path();
///     tree.push(leaf_hash(entry));
///     path
/// });
/// assert_eq!(root_with_last(leaf_hash(b"c"), 3, &path[2]), Some(tree.root()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// From left to right, and so from the largest to the smallest.
    roots: Vec<Hash>,
}

impl Frontier {
    /// The tree of this size with these roots, from left to right. `None` if a tree of this size
    /// has another number of roots.
    pub fn new(size: u64, roots: Vec<Hash>) -> Option<Self> {
        let fits = usize::try_from(size.count_ones()) == Ok(roots.len());
        fits.then_some(Self { size, roots })
    }

    /// The number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots, from left to right.
    pub fn roots(&self) -> &[Hash] {
        &self.roots
    }

    /// Appends a leaf, given by its hash.
    pub fn push(&mut self, leaf: Hash) {
        let mut root = leaf;
        // As in adding 1 to a binary number: each 1 at its end is carried.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.roots.pop() {
                root = node_hash(&left, &root);
            }
        }
        self.roots.push(root);
        self.size += 1;
    }

    /// The root of the tree. For an empty tree it is the SHA-256 of no bytes.
    pub fn root(&self) -> Hash {
        let from_right = self.roots.iter().rev().copied();
        from_right
            .reduce(|right, left| node_hash(&left, &right))
            .unwrap_or_else(|| Sha256::digest([]).into())
    }

    /// The sibling hashes on the path from the next leaf to the root of the tree with that leaf:
    /// see [`root_with_last`].
    pub fn path(&self) -> Vec<Hash> {
        self.roots.iter().rev().copied().collect()
    }

    /// The proof that this tree is the beginning of the tree with the leaf hashes `later` appended
    /// (RFC 6962, section 2.1.2). It is empty if this tree or `later` is empty.
    pub fn consistency(&self, later: &[Hash]) -> Vec<Hash> {
        let mut proof = Vec::new();
        let size = self.size + later.len() as u64;
        if self.size > 0 && !later.is_empty() {
            self.prove(later, (0, self.size), size, true, &mut proof);
        }
        proof
    }

    /// The algorithm SUBPROOF of the RFC, for the tree over the leaves from `start` to `end`, of which
    /// those before `old` are the earlier tree's.
    fn prove(
        &self,
        later: &[Hash],
        (start, old): (u64, u64),
        end: u64,
        is_whole: bool,
        proof: &mut Vec<Hash>,
    ) {
        if old == end {
            if !is_whole {
                proof.push(self.subtree(later, start, end));
            }
            return;
        }
        let middle = start + (end - start).next_power_of_two() / 2;
        if old <= middle {
            self.prove(later, (start, old), middle, is_whole, proof);
            proof.push(self.subtree(later, middle, end));
        } else {
            self.prove(later, (middle, old), end, false, proof);
            proof.push(self.subtree(later, start, middle));
        }
    }

    /// The root over some leaves: all are later ones, or they are those below one of the roots.
    fn subtree(&self, later: &[Hash], start: u64, end: u64) -> Hash {
        let place =
            |leaf: u64| usize::try_from(leaf.saturating_sub(self.size)).unwrap_or(usize::MAX);
        if start >= self.size {
            let mut tree = Self::default();
            later.iter().take(place(end)).skip(place(start)).for_each(|leaf| tree.push(*leaf));
            return tree.root();
        }
        // Before the tree at `start` stand those of the larger powers of two.
        let before = usize::try_from(start.count_ones()).unwrap_or(usize::MAX);
        self.roots.get(before).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions of the RFC, word by word, over all leaves.
    fn root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest([]).into(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                node_hash(&root(left), &root(right))
            }
        }
    }

    fn subproof(old: usize, leaves: &[Hash], is_whole: bool) -> Vec<Hash> {
        if old == leaves.len() {
            return if is_whole { Vec::new() } else { vec![root(leaves)] };
        }
        let middle = leaves.len().next_power_of_two() / 2;
        let (left, right) = leaves.split_at(middle);
        if old <= middle {
            [subproof(old, left, is_whole), vec![root(right)]].concat()
        } else {
            [subproof(old - middle, right, false), vec![root(left)]].concat()
        }
    }

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|place| leaf_hash(&place.to_be_bytes())).collect()
    }

    fn tree(leaves: &[Hash]) -> Frontier {
        let mut tree = Frontier::default();
        for leaf in leaves {
            tree.push(*leaf);
        }
        tree
    }

    #[test]
    fn roots_and_proofs_are_those_of_the_definition() {
        let leaves = leaves(70);
        for size in 0..=leaves.len() {
            let whole = tree(&leaves[..size]);
            assert_eq!(whole.root(), root(&leaves[..size]));
            assert_eq!(Frontier::new(whole.size(), whole.roots().to_vec()), Some(whole));
            for old in 1..size {
                let expected = subproof(old, &leaves[..size], true);
                assert_eq!(
                    tree(&leaves[..old]).consistency(&leaves[old..size]),
                    expected,
                    "{old} of {size}"
                );
            }
            assert!(tree(&leaves[..size]).consistency(&[]).is_empty());
            assert!(Frontier::default().consistency(&leaves[..size]).is_empty());
        }
    }

    #[test]
    fn the_last_leaf_and_no_other_leads_to_the_root() {
        let leaves = leaves(40);
        for size in 1..=leaves.len() {
            let path = tree(&leaves[..size - 1]).path();
            let expected = tree(&leaves[..size]).root();
            let count = size as u64;
            assert_eq!(root_with_last(leaves[size - 1], count, &path), Some(expected));
            for other in &leaves[..size - 1] {
                assert_ne!(root_with_last(*other, count, &path), Some(expected));
            }
            assert_eq!(
                root_with_last(leaves[size - 1], count, &[&path[..], &[[0; 32]]].concat()),
                None
            );
        }
        assert_eq!(root_with_last(leaves[0], 0, &[]), None);
        assert_eq!(Frontier::new(3, vec![[0; 32]]), None);
    }
}
