//! The shared map behaves as an ordinary map, and its copies do not see later changes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Hasher, SharedMap};

fn contents<V: Clone>(map: &SharedMap<V>) -> BTreeMap<String, V> {
    let mut out = BTreeMap::new();
    map.for_each(&mut |text, value| {
        assert!(out.insert(text.to_owned(), value.clone()).is_none(), "{text} is there twice");
    });
    out
}

proptest! {
    #[test]
    fn equals_an_ordinary_map_after_any_changes(changes in prop::collection::vec((0u16..600, any::<Option<u8>>()), 0..800)) {
        let mut map = SharedMap::default();
        let mut oracle = BTreeMap::new();
        let mut earlier = Vec::new();
        for (i, (text, value)) in changes.into_iter().enumerate() {
            if i % 97 == 0 {
                earlier.push((map.clone(), oracle.clone()));
            }
            let text = format!("/path/{text}");
            match value {
                Some(value) => {
                    map.insert(text.as_str(), value);
                    oracle.insert(text, value);
                }
                None => {
                    map.remove(&text);
                    oracle.remove(&text);
                }
            }
        }
        for (text, value) in &oracle {
            prop_assert_eq!(map.get(text), Some(value));
        }
        prop_assert_eq!(map.get("/path/600"), None);
        prop_assert_eq!(map.len(), oracle.len());
        prop_assert_eq!(contents(&map), oracle);
        for (map, oracle) in earlier {
            prop_assert_eq!(contents(&map), oracle);
        }
    }
}

#[test]
fn a_growing_hash_equals_the_hash_of_the_whole() {
    let mut map = SharedMap::default();
    map.insert("/a/b", 1);
    let mut hasher = Hasher::new();
    "/a/b".bytes().for_each(|byte| hasher.push(byte));
    assert_eq!(map.get_hashed(hasher.hash(), "/a/b"), Some(&1));
}

#[test]
fn texts_spread_over_the_branches() {
    let mut map = SharedMap::default();
    for i in 0..50_000 {
        map.insert(format!("host-{i}.example.com"), ());
    }
    let mut depths = vec![0_usize; 17];
    count_leaves(&map.root, 0, &mut depths);
    // 50,000 texts need at least 3 levels of 16; a good hash needs no more than 2 beyond that.
    assert_eq!(depths[7..].iter().sum::<usize>(), 0, "{depths:?}");
}

fn count_leaves<V>(node: &super::Node<V>, depth: usize, depths: &mut [usize]) {
    match node {
        super::Node::Empty => {}
        super::Node::Leaf(_) => depths[depth] += 1,
        super::Node::Branch(children) => {
            children.iter().for_each(|child| count_leaves(child, depth + 1, depths));
        }
    }
}
