//! Pages of lists, within the message size that gRPC clients accept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use tonic::Status;

/// The number of items of a page, by default and at most.
const ITEMS: u32 = 100;
const ITEMS_MAX: u32 = 1000;

/// Most bytes of the items of an answer with more than one item: a quarter of the default limit of
/// gRPC clients.
const BYTES_MAX: usize = 1 << 20;

/// Items that are read from the store at a time.
pub const READ_AT_ONCE: u32 = 16;

/// The separator in a page token; no name contains it.
const BETWEEN: char = '/';

/// A requested page.
#[derive(Debug)]
pub struct Page {
    /// The list's name, with the kind of its items.
    list: &'static str,
    /// The name of the last item before the page. None: it is the first page.
    pub after: Option<String>,
    items: usize,
}

impl Page {
    /// The page of a list that a request asks for. Lists of different items need different names.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when the token is not one of this list.
    pub fn of(list: &'static str, size: u32, token: &str) -> Result<Self, Status> {
        let items = if size == 0 { ITEMS } else { size.min(ITEMS_MAX) } as usize;
        let after = if token.is_empty() { None } else { Some(read(list, token)?) };
        Ok(Self { list, after, items })
    }

    /// The most items that can be useful for the page.
    pub fn useful(&self) -> usize {
        self.items + 1
    }

    /// The items of the page and the token of the next one. `items` are those after
    /// [`Self::after`], with their names.
    pub fn fill<T: Message>(
        &self,
        items: impl IntoIterator<Item = (String, T)>,
    ) -> (Vec<T>, String) {
        let (mut page, mut bytes, mut last) = (Vec::new(), 0, String::new());
        for (name, item) in items {
            bytes += item.encoded_len();
            if page.len() == self.items || (bytes > BYTES_MAX && !page.is_empty()) {
                let token = format!("{}{BETWEEN}{last}", self.list);
                return (page, URL_SAFE_NO_PAD.encode(token));
            }
            page.push(item);
            last = name;
        }
        (page, String::new())
    }
}

impl Page {
    /// As [`Self::fill`], with items that `read` gives in order after a name: at most
    /// [`READ_AT_ONCE`] of them, and fewer at the end.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T: Message, E>(
        &self,
        mut read: impl FnMut(&str) -> Result<Vec<(String, T)>, E>,
    ) -> Result<(Vec<T>, String), E> {
        let mut after = self.after.clone().unwrap_or_default();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < self.useful() && bytes <= BYTES_MAX {
            let some = read(&after)?;
            let is_last = some.len() < READ_AT_ONCE as usize;
            bytes += some.iter().map(|(_, item)| item.encoded_len()).sum::<usize>();
            after = some.last().map_or(after, |(name, _)| name.clone());
            items.extend(some);
            if is_last {
                break;
            }
        }
        Ok(self.fill(items))
    }
}

fn read(list: &str, token: &str) -> Result<String, Status> {
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|text| String::from_utf8(text).ok());
    let parts = text.as_deref().and_then(|text| text.split_once(BETWEEN));
    match parts {
        Some((of, after)) if of == list => Ok(after.to_owned()),
        _ => Err(Status::invalid_argument(
            "`page_token` is not one of this list; send the `next_page_token` of the answer \
             before, and nothing else changed",
        )),
    }
}

/// The newest of numbered items that fit in an answer, and the number before which the rest begins.
/// `read` gives so many of them before a number, which are no more at a time than a few answers
/// can take: items can be as large as requests.
///
/// # Errors
/// Those of `read`.
pub fn read_newest<T: Message, E>(
    wanted: u32,
    mut before: Option<u64>,
    number: impl Fn(&T) -> u64,
    mut read: impl FnMut(Option<u64>, u32) -> Result<Vec<T>, E>,
) -> Result<(Vec<T>, u64), E> {
    let (mut items, mut bytes): (Vec<T>, usize) = (Vec::new(), 0);
    while items.len() < wanted as usize && bytes <= BYTES_MAX {
        let missing = wanted - u32::try_from(items.len()).unwrap_or(wanted);
        let asked = missing.min(READ_AT_ONCE);
        let some = read(before, asked)?;
        let is_last = some.len() < asked as usize;
        before = some.last().map(&number);
        bytes += some.iter().map(Message::encoded_len).sum::<usize>();
        items.extend(some);
        if is_last {
            break;
        }
    }
    Ok(newest(items, wanted, number))
}

/// The numbered items that fit in an answer, highest number first, and the number before which the
/// rest begins; 0: there is no rest. `wanted` items were asked for.
fn newest<T: Message>(mut items: Vec<T>, wanted: u32, number: impl Fn(&T) -> u64) -> (Vec<T>, u64) {
    let mut bytes = 0;
    let fits = |item: &&T| {
        bytes += item.encoded_len();
        bytes <= BYTES_MAX
    };
    let fitting = items.iter().take_while(fits).count().max(1);
    let is_cut = items.len() > fitting;
    items.truncate(fitting);
    let has_rest = is_cut || items.len() >= wanted as usize;
    let next = items.last().filter(|_| has_rest).map_or(0, number);
    // Numbers begin at 1, so nothing precedes it.
    (items, if next <= 1 { 0 } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &'static str, size: u32, items: &[(String, String)]) -> Vec<Vec<String>> {
        let (mut pages, mut token) = (Vec::new(), String::new());
        loop {
            let page = Page::of(list, size, &token).unwrap();
            let is_after = |(name, _): &&(String, String)| {
                page.after.as_ref().is_none_or(|after| name > after)
            };
            let rest = items.iter().filter(is_after).take(page.useful()).cloned();
            let (filled, next) = page.fill(rest);
            pages.push(filled);
            if next.is_empty() {
                return pages;
            }
            token = next;
        }
    }

    fn items(lengths: &[usize]) -> Vec<(String, String)> {
        let item = |(place, length): (usize, &usize)| (format!("{place:04}"), "x".repeat(*length));
        lengths.iter().enumerate().map(item).collect()
    }

    #[test]
    fn pages_have_every_item_once_and_end() {
        for (count, size) in [(0, 3), (1, 3), (3, 3), (4, 3), (7, 3), (250, 0), (2500, 5000)] {
            let items = items(&vec![2; count]);
            let pages = all("list", size, &items);
            assert_eq!(pages.concat().len(), count);
            let most = match size {
                0 => 100,
                size => size.min(1000) as usize,
            };
            assert!(pages.iter().all(|page| page.len() <= most), "{count} by {size}");
            assert_eq!(pages.len(), count.div_ceil(most).max(1));
        }
    }

    #[test]
    fn pages_have_few_bytes_or_one_item() {
        let lengths = [10, BYTES_MAX, 10, BYTES_MAX * 2, BYTES_MAX / 2, BYTES_MAX / 3, 10];
        let pages = all("list", 100, &items(&lengths));
        let lengths: Vec<Vec<_>> =
            pages.iter().map(|page| page.iter().map(String::len).collect()).collect();
        assert_eq!(
            lengths,
            [
                vec![10],
                vec![BYTES_MAX],
                vec![10],
                vec![BYTES_MAX * 2],
                vec![BYTES_MAX / 2, BYTES_MAX / 3, 10]
            ]
        );
    }

    #[test]
    fn tokens_of_other_lists_are_refused() {
        let (_, token) = Page::of("one", 1, "").unwrap().fill(items(&[1, 1]));
        assert_eq!(Page::of("one", 1, &token).unwrap().after.as_deref(), Some("0000"));
        for wrong in [("two", &*token), ("one", "x"), ("one", "0000"), ("one", "****")] {
            let refused = Page::of(wrong.0, 1, wrong.1).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        }
    }

    #[test]
    fn the_newest_come_first_and_tell_where_the_rest_is() {
        let numbered = |lengths: &[usize]| -> Vec<String> {
            lengths.iter().map(|length| "x".repeat(*length)).collect()
        };
        let number = |item: &String| item.len() as u64;
        assert_eq!(newest(numbered(&[9, 8, 7]), 100, number).1, 0, "fewer than were wanted");
        assert_eq!(newest(numbered(&[9, 8, 7]), 3, number).1, 7);
        assert_eq!(newest(numbered(&[3, 2, 1]), 3, number).1, 0, "there is none before 1");
        let (some, next) = newest(numbered(&[BYTES_MAX, 9, 8]), 100, number);
        assert_eq!((some.len(), next), (1, BYTES_MAX as u64));
        let (some, next) = newest(numbered(&[BYTES_MAX / 2, BYTES_MAX / 3, 9]), 2, number);
        assert_eq!((some.len(), next), (3, 9));
        assert!(newest(Vec::<String>::new(), 3, number).0.is_empty());
    }

    #[test]
    fn items_are_read_until_an_answer_is_full() {
        let read = |lengths: Vec<usize>, wanted| {
            let (mut reads, all) = (0, lengths);
            let (items, next) = read_newest(
                wanted,
                None,
                |item: &String| item.len() as u64,
                |before, limit| {
                    reads += 1;
                    let older = all.iter().filter(|one| before.is_none_or(|b| (**one as u64) < b));
                    let some = older.take(limit as usize).map(|length| "x".repeat(*length));
                    Ok::<_, ()>(some.collect())
                },
            )
            .unwrap();
            (items.len(), next, reads)
        };
        assert_eq!(read((1..=40).rev().collect(), 100), (40, 0, 3));
        assert_eq!(read((1..=40).rev().collect(), 20), (20, 21, 2));
        let large = (0..100).map(|place| BYTES_MAX / 4 - 100 - place).collect();
        assert_eq!(read(large, 100), (4, (BYTES_MAX / 4 - 103) as u64, 1));
    }
}
