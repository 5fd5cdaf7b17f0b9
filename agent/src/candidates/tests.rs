//! The choice of the next controller: single answers, and any sequence of them.

use proptest::prelude::*;

use super::*;

fn address(n: usize) -> Addresses {
    let host = format!("10.0.0.{n}");
    Addresses { enroll: format!("{host}:7400"), push: format!("{host}:7401"), host }
}

fn three() -> Candidates {
    let mut candidates = Candidates::default();
    candidates.replace((0..3).map(address).collect(), 0);
    candidates
}

/// Begins the next attempt when it is due; who it is, and the time.
fn go(candidates: &mut Candidates, now: u64) -> (String, u64) {
    let at = now.max(candidates.due());
    (candidates.next(at).unwrap().address.host, at)
}

fn not_leader(to: &str, retry_ms: u64) -> Answer {
    Answer::NotLeader { leader_address: Some(to.to_owned()).filter(|to| !to.is_empty()), retry_ms }
}

#[test]
fn a_hint_is_followed_at_once_and_only_to_a_candidate() {
    for hint in ["10.0.0.2:9", "10.0.0.2", "[::ffff:1]:2", "10.0.0.9:7401", "", "10.0.0.0:1", ":", "10.0.0.2:7401"] {
        let mut candidates = three();
        assert_eq!(go(&mut candidates, 0).0, "10.0.0.0");
        candidates.ended(10, 7, false, &not_leader(hint, 500));
        let (next, at) = go(&mut candidates, 10);
        if hint.starts_with("10.0.0.2") {
            assert_eq!(next, "10.0.0.2", "{hint}");
            assert!(at <= 10 + JITTER_MS, "{hint}: after {at} ms");
        } else {
            assert_eq!(next, "10.0.0.1", "{hint}: the next one in turn");
            assert!(at >= 510, "{hint}: it did not wait as asked, {at} ms");
        }
    }
}

#[test]
fn a_name_is_a_hint_to_whoever_has_it() {
    let mut candidates = Candidates::default();
    let named = Addresses { host: "controller-1.example".to_owned(), ..address(1) };
    candidates.replace(vec![address(0), address(2), named], 0);
    go(&mut candidates, 0);
    candidates.ended(0, 0, false, &not_leader("controller-1.example:7401", 500));
    assert_eq!(go(&mut candidates, 0).0, "controller-1.example");
}

#[test]
fn a_hint_to_whoever_just_failed_is_not_followed_until_it_may_be_there_again() {
    for (later, follows) in [(100, false), (RECENT_MS - 1, false), (RECENT_MS, true)] {
        let mut candidates = three();
        go(&mut candidates, 0);
        candidates.ended(0, 0, true, &Answer::Lost);
        assert_eq!(go(&mut candidates, 0).0, "10.0.0.1", "the next one, at once");
        candidates.ended(later, 0, false, &not_leader("10.0.0.0:1", 300));
        let (next, at) = go(&mut candidates, later);
        assert_eq!((&*next, at >= later + 300), if follows { ("10.0.0.0", false) } else { ("10.0.0.2", true) });
    }
}

/// When an agent whose leader ended its stream like this comes to it again, while the others say that they do not lead.
fn back_after(answer: &Answer) -> u64 {
    let mut candidates = three();
    go(&mut candidates, 0);
    candidates.ended(0, 0, true, answer);
    let mut now = 0;
    for n in 0..40u64 {
        let (next, at) = go(&mut candidates, now);
        if next == "10.0.0.0" {
            return at;
        }
        now = at;
        candidates.ended(now, n, false, &not_leader("10.0.0.0:1", 100));
    }
    panic!("it never had a turn again after {answer:?}");
}

#[test]
fn whoever_fell_silent_is_left_out_of_the_rounds_for_a_while_and_whoever_can_be_asked_is_not() {
    assert!(back_after(&Answer::Silent) >= RECENT_MS, "an attempt at whoever is silent");
    // It may have been replaced, and be the one that leads next: asking costs nothing.
    for answer in [Answer::Lost, Answer::Failed] {
        assert!(back_after(&answer) < RECENT_MS, "{answer:?}: it is shunned");
    }
}

#[test]
fn hints_in_a_circle_end_in_a_wait_and_at_another_candidate() {
    let mut candidates = three();
    assert_eq!(go(&mut candidates, 0).0, "10.0.0.0");
    candidates.ended(0, 0, false, &not_leader("10.0.0.1:1", 400));
    assert_eq!(go(&mut candidates, 0).0, "10.0.0.1");
    candidates.ended(0, 0, false, &not_leader("10.0.0.0:1", 400));
    let (next, at) = go(&mut candidates, 0);
    assert_eq!((&*next, at), ("10.0.0.2", 400));
}

#[test]
fn a_lost_stream_leads_to_the_next_one_at_once_and_only_whole_rounds_wait() {
    let mut candidates = three();
    let (mut now, mut waits) = (0, Vec::new());
    go(&mut candidates, now);
    candidates.ended(now, 50, true, &Answer::Lost);
    for _ in 0..30 {
        let (_, at) = go(&mut candidates, now);
        waits.push(at - now);
        now = at + 1_000;
        candidates.ended(now, 50, false, &Answer::Failed);
    }
    // Two more of the first round, then rounds of three.
    assert!(waits[..2].iter().all(|wait| *wait <= JITTER_MS), "{waits:?}");
    assert!(waits[2] <= 200, "the first wait is short: {waits:?}");
    let (pauses, within): (Vec<_>, Vec<_>) = waits[2..].iter().enumerate().partition(|(n, _)| n % 3 == 0);
    assert!(within.iter().all(|(_, wait)| **wait <= JITTER_MS), "{waits:?}");
    assert!(pauses.iter().all(|(_, pause)| **pause <= LONGEST_MS), "{waits:?}");
}

#[test]
fn while_some_replica_answers_the_wait_stays_short_and_otherwise_it_grows() {
    let longest = |answers: bool| {
        let mut candidates = three();
        let (mut now, mut longest) = (0, 0);
        for n in 0..60u64 {
            let (_, at) = go(&mut candidates, now);
            longest = longest.max(at - now);
            now = at;
            let answer = if answers && n % 3 == 0 { not_leader("", 0) } else { Answer::Failed };
            candidates.ended(now, (u64::MAX / 7).wrapping_mul(n), false, &answer);
        }
        longest
    };
    assert!(longest(true) <= LONGEST_ANSWERED_MS);
    assert!(longest(false) > LONGEST_ANSWERED_MS);
}

#[test]
fn an_only_candidate_has_the_longest_limits_and_several_have_short_ones_that_grow() {
    let mut one = Candidates::default();
    one.replace(vec![address(0)], 0);
    let attempt = one.next(0).unwrap();
    assert_eq!((attempt.connect_ms, attempt.answer_ms), (LONGEST_CONNECT_MS, LONGEST_ANSWER_MS));
    assert!(!one.turn_from_current(0, 0), "there is nobody else");
    let mut several = three();
    let mut limits = Vec::new();
    for n in 0..30 {
        let attempt = several.next(n * 10_000).unwrap();
        limits.push((attempt.connect_ms, attempt.answer_ms));
        several.ended(n * 10_000, 0, false, &Answer::Failed);
    }
    assert_eq!((limits[0], limits[2], limits[3]), ((1_000, 2_000), (1_000, 2_000), (2_000, 4_000)));
    assert_eq!(limits[29], (LONGEST_CONNECT_MS, LONGEST_ANSWER_MS));
}

#[test]
fn whoever_asks_for_it_is_come_back_to_but_not_for_ever() {
    let mut candidates = three();
    let mut now = 0;
    for n in 0..=COME_BACK {
        let (next, at) = go(&mut candidates, now);
        assert_eq!(next, "10.0.0.0", "time {n}");
        assert!(n == 0 || at - now >= 700, "{at} {now}");
        now = at;
        candidates.ended(now, 0, false, &Answer::RetryAfter { ms: 700 });
    }
    assert_eq!(go(&mut candidates, now).0, "10.0.0.1");
}

#[test]
fn beside_a_stream_that_is_not_sure_only_the_others_are_tried_again_and_again() {
    for (answer, then) in [(Answer::Failed, "10.0.0.1"), (Answer::Silent, "10.0.0.0")] {
        let mut candidates = three();
        assert_eq!(go(&mut candidates, 0).0, "10.0.0.0");
        assert!(candidates.turn_from_current(0, 0));
        let mut now = 0;
        for n in 0..40 {
            let (next, at) = go(&mut candidates, now);
            assert_eq!(next, if n % 2 == 0 { "10.0.0.1" } else { "10.0.0.2" }, "{answer:?}");
            assert!(at - now <= LONGEST_ANSWERED_MS);
            now = at + 100;
            candidates.ended_beside(now, n, &answer);
        }
        // It is sure again, and lost later: then the others come first, unless they were silent just now.
        candidates.stay_with(&address(0));
        candidates.ended(now, 0, true, &Answer::Lost);
        assert_eq!(go(&mut candidates, now).0, then, "{answer:?}");
    }
}

#[test]
fn looking_elsewhere_again_and_again_is_paced() {
    let mut candidates = three();
    go(&mut candidates, 0);
    assert!(candidates.turn_from_current(0, 0));
    let (_, at) = go(&mut candidates, 0);
    candidates.ended(at, 0, false, &not_leader("10.0.0.0:1", 10));
    let (next, at) = go(&mut candidates, at);
    assert_eq!(next, "10.0.0.0", "back by hint");
    assert!(candidates.turn_from_current(at, 0));
    assert!(go(&mut candidates, at).1 >= TURN_MS);
}

#[test]
fn what_is_known_of_a_candidate_stays_when_the_list_changes() {
    let mut candidates = three();
    go(&mut candidates, 0);
    candidates.ended(0, 0, false, &Answer::Failed);
    candidates.replace(vec![address(3), address(2), address(0), address(2)], 0);
    assert_eq!(candidates.len(), 3);
    // 10.0.0.1 was planned and is gone; 10.0.0.0 was tried.
    assert_eq!(go(&mut candidates, 0).0, "10.0.0.3");
    candidates.replace(Vec::new(), 5);
    assert!(candidates.is_empty() && candidates.next(0).is_none());
    candidates.ended(0, 0, true, &Answer::Lost);
    candidates.replace(vec![address(1)], 5);
    assert_eq!(go(&mut candidates, 0).0, "10.0.0.1");
}

#[test]
fn hosts_are_read_from_every_form_of_an_address() {
    for (text, host) in [
        ("1.2.3.4:5", "1.2.3.4"),
        ("1.2.3.4", "1.2.3.4"),
        ("[::1]:5", "::1"),
        ("::1", "::1"),
        ("a.b:1", "a.b"),
        ("", ""),
    ] {
        assert_eq!(host_of(text), host);
    }
}

/// An answer that is no service, with who is hinted at.
fn answers() -> impl Strategy<Value = (Answer, bool)> {
    let hint = prop::option::of(0..7usize);
    prop_oneof![
        3 => Just((Answer::Failed, false)),
        2 => Just((Answer::Silent, false)),
        2 => Just((Answer::Lost, false)),
        6 => (hint, 0..5_000u64).prop_map(|(to, retry_ms)| {
            (not_leader(&to.map(|n| address(n).push).unwrap_or_default(), retry_ms), false)
        }),
        1 => (0..3_000u64).prop_map(|ms| (Answer::RetryAfter { ms }, false)),
        1 => Just((Answer::Superseded, false)),
    ]
}

proptest! {
    /// Whatever they answer: as long as nobody serves, every candidate gets its turn.
    #[test]
    fn no_sequence_of_answers_keeps_an_agent_from_any_candidate_or_leads_it_elsewhere_or_makes_it_spin(
        count in 1..6usize,
        steps in prop::collection::vec((answers(), any::<u64>(), 0..200u64), 1..400),
    ) {
        let mut candidates = Candidates::default();
        candidates.replace((0..count).map(address).collect(), steps[0].1);
        let (mut now, mut at_all, mut seen) = (0, Vec::new(), vec![0; count]);
        for ((answer, served), dice, took) in steps {
            let due = candidates.due();
            prop_assert!(due <= now + 72_000, "waits {} ms", due - now);
            now = now.max(due);
            let tried = candidates.next(now).unwrap().address;
            let Some(which) = (0..count).find(|n| address(*n) == tried) else {
                return Err(TestCaseError::fail(format!("{tried:?} is no candidate")));
            };
            at_all.push(now);
            seen[which] = now;
            // Everybody's last turn: a wait of any kind, for each candidate, as often as somebody may ask to come back.
            let longest = (count as u64 + 1) * u64::from(COME_BACK + 2) * 12_000;
            for (n, last) in seen.iter().enumerate() {
                prop_assert!(now - last <= longest, "{n} had no turn for {} ms", now - last);
            }
            now += took;
            candidates.ended(now, dice, served, &answer);
        }
        let most = ATTEMPTS_PER_SECOND.max(count);
        for window in at_all.windows(most + 1) {
            prop_assert!(window[most] - window[0] >= 1_000, "{} attempts within a second", most + 1);
        }
    }
}
