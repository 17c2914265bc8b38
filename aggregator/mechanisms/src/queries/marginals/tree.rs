//! Junction trees: the cliques in which a graphical model over columns is computed exactly.

/// A set of columns, as bits of their indices.
pub(super) type Columns = u32;

/// The columns of a set, in order.
pub(super) fn members(set: Columns) -> impl Iterator<Item = usize> {
    let following = |rest: &Columns| Some(rest & rest.wrapping_sub(1));
    std::iter::successors(Some(set), following)
        .take_while(|&rest| rest != 0)
        .map(|rest| rest.trailing_zeros() as usize)
}

/// The number of combinations of values of a set of columns.
pub(super) fn cells(set: Columns, sizes: &[usize]) -> u128 {
    let size = |column| sizes.get(column).map_or(1, |&size| size as u128);
    members(set).map(size).fold(1, u128::saturating_mul)
}

/// All sets of so many of the columns; of all, if there are fewer.
pub(super) fn workload(columns: usize, ways: u32) -> Vec<Columns> {
    let ways = (ways as usize).min(columns);
    let mut sets: Vec<Columns> = vec![0];
    for _ in 0..ways {
        let longer = |&set: &Columns| {
            let from = (Columns::BITS - set.leading_zeros()) as usize;
            (from..columns).map(move |column| set | 1 << column)
        };
        sets = sets.iter().flat_map(longer).collect();
    }
    sets
}

/// A clique: a set of columns, its parent, and the columns that both have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clique {
    pub(super) columns: Columns,
    /// Comes earlier in the tree.
    pub(super) parent: Option<usize>,
    pub(super) separator: Columns,
}

/// The cliques of a triangulation of the graph that joins columns of a common set.
///
/// Columns are eliminated one after the other, the one with the smallest clique first; its
/// neighbours then are neighbours of each other. The cliques are those of a chordal graph, and
/// contain every set.
fn triangulate(sets: &[Columns], sizes: &[usize]) -> Vec<Columns> {
    let mut neighbours = vec![0; sizes.len()];
    for &set in sets {
        for column in members(set) {
            if let Some(near) = neighbours.get_mut(column) {
                *near |= set;
            }
        }
    }
    let mut left: Columns = (0..sizes.len()).fold(0, |all, column| all | 1 << column);
    let mut found: Vec<Columns> = Vec::new();
    while left != 0 {
        let clique =
            |column: usize| (neighbours.get(column).copied().unwrap_or(0) | 1 << column) & left;
        let least = members(left).min_by_key(|&column| cells(clique(column), sizes));
        let Some(column) = least else { break };
        let clique = clique(column);
        for other in members(clique) {
            if let Some(near) = neighbours.get_mut(other) {
                *near |= clique;
            }
        }
        left &= !(1 << column);
        if !found.iter().any(|earlier| clique & !earlier == 0) {
            found.push(clique);
        }
    }
    found
}

/// The number of cells of all cliques of a tree for these sets.
pub(super) fn size(sets: &[Columns], sizes: &[usize]) -> u128 {
    let cliques = triangulate(sets, sizes);
    cliques.into_iter().map(|clique| cells(clique, sizes)).fold(0, u128::saturating_add)
}

/// A junction tree for these sets: parents come before their children, and every column's cliques
/// are connected.
///
/// Of a chordal graph's cliques, a spanning tree whose separators have the most columns is one
/// (Koller and Friedman, "Probabilistic graphical models", 2009, section 10.4.2). It is grown from
/// the first clique on.
pub(super) fn junction_tree(sets: &[Columns], sizes: &[usize]) -> Vec<Clique> {
    let mut left = triangulate(sets, sizes);
    let mut tree: Vec<Clique> = Vec::new();
    while !left.is_empty() {
        let mut best: Option<(u32, usize, Option<usize>)> = None;
        for (place, columns) in left.iter().enumerate() {
            let to_nobody = tree.is_empty().then_some((0, place, None));
            let to_parents = tree.iter().enumerate().map(|(parent, clique)| {
                ((clique.columns & columns).count_ones(), place, Some(parent))
            });
            for edge in to_nobody.into_iter().chain(to_parents) {
                if best.is_none_or(|(common, ..)| edge.0 > common) {
                    best = Some(edge);
                }
            }
        }
        let Some((_, place, parent)) = best else { break };
        let columns = left.swap_remove(place);
        let above = parent.and_then(|parent| tree.get(parent)).map_or(0, |clique| clique.columns);
        tree.push(Clique { columns, parent, separator: columns & above });
    }
    tree
}

/// For each cell of one set of columns, the cell of a subset of it. The first column changes
/// slowest.
pub(super) fn projection(from: Columns, to: Columns, sizes: &[usize]) -> Vec<u32> {
    let size = |column: usize| sizes.get(column).copied().unwrap_or(1);
    let mut cells = vec![0_u32];
    for column in members(from) {
        let (values, kept) = (size(column), to >> column & 1 == 1);
        let codes = 0..u32::try_from(values).unwrap_or(u32::MAX);
        let next = |&cell: &u32| {
            let codes = codes.clone();
            codes.map(move |code| if kept { cell * u32_of(values) + code } else { cell })
        };
        cells = cells.iter().flat_map(next).collect();
    }
    cells
}

fn u32_of(values: usize) -> u32 {
    u32::try_from(values).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set in a clique, and each column's cliques connected.
    fn is_junction_tree(tree: &[Clique], sets: &[Columns], columns: usize) -> bool {
        let contained = sets.iter().all(|set| tree.iter().any(|clique| set & !clique.columns == 0));
        // A column's cliques are connected if all but one have it in their separator.
        let connected = (0..columns).all(|column| {
            let has = |set: Columns| set >> column & 1 == 1;
            let cliques = tree.iter().filter(|clique| has(clique.columns)).count();
            let joined = tree.iter().filter(|clique| has(clique.separator)).count();
            cliques == joined + 1
        });
        let ordered =
            tree.iter().enumerate().all(|(at, clique)| clique.parent.is_none_or(|p| p < at));
        contained && connected && ordered
    }

    #[test]
    fn trees_contain_every_set_and_keep_columns_connected() {
        let sizes = [2, 3, 2, 5, 4, 2, 3];
        let cases: [&[Columns]; 5] = [
            &[],
            &[0b11, 0b110, 0b1100, 0b1001],
            &[0b11, 0b110, 0b1100, 0b11000, 0b11_0000, 0b110_0000, 0b100_0001],
            &[0b111, 0b11100, 0b111_0000],
            &[0b100_0001, 0b010_0010, 0b001_0100, 0b000_1010, 0b101_0000],
        ];
        for sets in cases {
            let tree = junction_tree(sets, &sizes);
            assert!(is_junction_tree(&tree, sets, sizes.len()), "{sets:?}: {tree:?}");
            let total: u128 = tree.iter().map(|clique| cells(clique.columns, &sizes)).sum();
            assert_eq!(total, size(sets, &sizes));
        }
        // A cycle of four needs a chord.
        let tree = junction_tree(&[0b11, 0b110, 0b1100, 0b1001], &[2; 4]);
        assert_eq!(tree.iter().map(|clique| clique.columns.count_ones()).max(), Some(3));
    }

    #[test]
    fn projections_keep_the_codes_of_their_columns() {
        let sizes = [2, 3, 4];
        assert_eq!(projection(0b101, 0b100, &sizes), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(projection(0b11, 0b01, &sizes), [0, 0, 0, 1, 1, 1]);
        assert_eq!(projection(0b11, 0, &sizes), [0; 6]);
        let all = projection(0b111, 0b101, &sizes);
        assert_eq!(all[(4 + 1) * 4 + 3], 4 + 3);
    }
}
