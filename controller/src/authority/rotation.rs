//! When one authority follows another, without a moment at which either end distrusts a certificate in use.
//!
//! A new authority is *announced* first: it is in the bundle, and signs nothing. When every agent has renewed its certificate since, and
//! got the new bundle with it, it is *promoted*: it signs. When every certificate of the old one has ended, that one is *dropped*.
//! Each step follows from what the Secret holds and from the time of day, so a step that was missed is made later.

use std::time::{Duration, SystemTime};

use push::authority::Validity;

/// How long things are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a new authority.
    pub authority: Duration,
    /// Of an agent's certificate. Agents renew at half of it.
    pub certificate: Duration,
}

/// What the Secret holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The authority that signs.
    pub signer: Validity,
    /// The one that is announced, if there is one.
    pub next: Option<Validity>,
    /// Whether others are trusted, which sign no more.
    pub has_old: bool,
    /// Since when the signer signs; unknown for one that was never promoted.
    pub signs_since: Option<SystemTime>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Make a new authority and trust it.
    Announce,
    /// Let the announced one sign.
    Promote,
    /// Trust the old ones no more.
    Drop,
}

/// The step that is due.
pub fn plan(now: SystemTime, held: &Held, lifetimes: Lifetimes) -> Step {
    // A clock that was set back makes everything younger, and nothing due.
    let since = |at: SystemTime| now.duration_since(at).unwrap_or_default();
    if let Some(next) = held.next {
        // Made by a clock that was far ahead: whoever waits for that day may see the signer end. A better one is announced beside it.
        if next.signed_at.duration_since(now).is_ok_and(|ahead| ahead > lifetimes.certificate) {
            return Step::Announce;
        }
        return if since(next.signed_at) >= lifetimes.certificate { Step::Promote } else { Step::Keep };
    }
    if held.has_old {
        // Without a record of when it began to sign, that is counted from when it was made, which was a whole lifetime earlier.
        let signs_since = held.signs_since.unwrap_or(held.signer.signed_at + lifetimes.authority / 2);
        if since(signs_since) >= lifetimes.certificate {
            return Step::Drop;
        }
    }
    // Whatever stands in the way of a drop is in the way of nothing else: trust only grows by this.
    let life = held.signer.not_after.duration_since(held.signer.signed_at).unwrap_or_default();
    if since(held.signer.signed_at) >= life / 2 { Step::Announce } else { Step::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIFETIMES: Lifetimes =
        Lifetimes { authority: Duration::from_secs(10_000), certificate: Duration::from_secs(1_000) };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn made(seconds: u64) -> Validity {
        Validity { signed_at: at(seconds), not_after: at(seconds) + LIFETIMES.authority }
    }

    #[test]
    fn a_new_one_is_announced_at_half_life_signs_a_certificate_lifetime_later_and_is_alone_after_another() {
        let alone = Held { signer: made(0), next: None, has_old: false, signs_since: None };
        assert_eq!(plan(at(4_999), &alone, LIFETIMES), Step::Keep);
        assert_eq!(plan(at(5_000), &alone, LIFETIMES), Step::Announce);
        let announced = Held { next: Some(made(5_000)), ..alone };
        assert_eq!(plan(at(5_999), &announced, LIFETIMES), Step::Keep);
        assert_eq!(plan(at(6_000), &announced, LIFETIMES), Step::Promote);
        let promoted = Held { signer: made(5_000), next: None, has_old: true, signs_since: Some(at(7_000)) };
        assert_eq!(plan(at(7_999), &promoted, LIFETIMES), Step::Keep);
        assert_eq!(plan(at(8_000), &promoted, LIFETIMES), Step::Drop);
        assert_eq!(plan(at(0), &promoted, LIFETIMES), Step::Keep, "a clock that was set back");
    }

    #[test]
    fn no_date_that_a_wrong_clock_or_a_hand_left_keeps_an_authority_from_being_replaced_in_time() {
        let (far, short) = (1_000_000, Validity { signed_at: at(0), not_after: at(4_000) });
        let alone = Held { signer: made(0), next: None, has_old: false, signs_since: None };
        // Signs since a day that is yet to come; made for less time than we would, beside one that was put there by hand.
        let ahead = Held { has_old: true, signs_since: Some(at(far)), ..alone };
        assert_eq!(plan(at(4_999), &ahead, LIFETIMES), Step::Keep);
        assert_eq!(plan(at(5_000), &ahead, LIFETIMES), Step::Announce);
        let by_hand = Held { signer: short, has_old: true, ..alone };
        assert_eq!(plan(at(1_999), &by_hand, LIFETIMES), Step::Keep);
        assert_eq!(plan(at(2_000), &by_hand, LIFETIMES), Step::Announce);
        // Announced by a clock that was ahead: a little is waited for, more is not.
        let announced = |seconds| Held { next: Some(made(seconds)), ..alone };
        assert_eq!(plan(at(5_000), &announced(6_000), LIFETIMES), Step::Keep);
        assert_eq!(plan(at(5_000), &announced(far), LIFETIMES), Step::Announce);
    }

    /// An agent's or a controller's certificate: who signed it, until when it is good.
    #[derive(Debug)]
    struct Leaf {
        signer: u64,
        bundle: Vec<u64>,
        enrolled: u64,
    }

    proptest! {
        /// Whenever the leader looks, and agents renew at half life at the latest: each end trusts what the other one shows.
        #[test]
        fn at_no_moment_does_an_end_distrust_the_other(looks in prop::collection::vec(1..900u64, 50..300), agents in 1..8u64) {
            let (mut bundle, mut next, mut signs_since, mut now) = (vec![0], None, None, 0);
            let mut leaves: Vec<Leaf> =
                (0..agents).map(|n| Leaf { signer: 0, bundle: vec![0], enrolled: n * 60 }).collect();
            let mut rotations = 0;
            for look in looks {
                let until = now + look;
                // What agents do between two looks: each renews when its time has come.
                while now < until {
                    now += 1;
                    for leaf in leaves.iter_mut().filter(|leaf| now >= leaf.enrolled + 500) {
                        *leaf = Leaf { signer: bundle[0], bundle: bundle.clone(), enrolled: now };
                    }
                    for leaf in &leaves {
                        prop_assert!(bundle.contains(&leaf.signer), "an agent's certificate is distrusted at {now}");
                        prop_assert!(leaf.bundle.contains(&bundle[0]), "an agent distrusts the controller at {now}");
                    }
                }
                let held = Held {
                    signer: made(bundle[0]), next: next.map(made), has_old: bundle.len() > 1 && next.is_none(), signs_since,
                };
                match plan(at(now), &held, LIFETIMES) {
                    Step::Keep => {}
                    Step::Announce => {
                        bundle.push(now);
                        next = Some(now);
                    }
                    Step::Promote => {
                        bundle.rotate_right(1);
                        (next, signs_since) = (None, Some(at(now)));
                        rotations += 1;
                    }
                    Step::Drop => bundle.truncate(1),
                }
                prop_assert!(now < bundle[0] + 10_000, "the authority ended");
            }
            prop_assert!(rotations > 0 || now < 7_000, "no rotation within {now} s");
        }
    }
}
