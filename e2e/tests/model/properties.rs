//! What must never happen, what has to happen sometimes, and the model as the checker sees it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use controller::election::Standing;
use stateright::{Model, Property};

use super::settle::settles;
use super::world::{Action, Bounds, Broken, Controller, Planted, Request, State};

/// The promises.
pub const NEVER: [&str; 5] = [
    "no two lead in one epoch",
    "no agent applies a version below one that it applied",
    "no agent applies an object older than one that it applied",
    "no two lead at one moment, each by its own clock",
    "when faults end, one leads and all agents have the newest",
];

/// Pushes that agents refused, in all runs together.
pub static REFUSED: AtomicU64 = AtomicU64::new(0);

/// A run's frame.
#[derive(Clone, Debug)]
pub struct Leaders {
    pub bounds: Bounds,
    pub planted: Planted,
    /// Whether each last state is followed on without faults.
    pub settles: bool,
}

impl Model for Leaders {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds.agents, self.planted)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(&self.bounds, self.planted, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let done = next.happen(action, self.planted);
        REFUSED.fetch_add(u64::from(next.refused), Relaxed);
        next.refused = 0;
        done.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Leaders>> {
        let always = Property::<Leaders>::always;
        let sometimes = Property::<Leaders>::sometimes;
        vec![
            always(NEVER[0], |_, state| state.broken != Some(Broken::TwoInOneEpoch)),
            always(NEVER[1], |_, state| state.broken != Some(Broken::VersionWentBack)),
            always(NEVER[2], |_, state| state.broken != Some(Broken::ObjectWentBack)),
            always(NEVER[3], |_, state| {
                // Who does not lead now leads no sooner by a look at its clock.
                let one = |one: &&Controller| is_leading(one) && one.leads(state.now);
                state.controllers.iter().filter(one).count() <= 1
            }),
            always(NEVER[4], |model, state| {
                !model.settles || state.now < model.bounds.ticks || settles(state, model.planted)
            }),
            sometimes("a failover", |_, state| has_followed(state)),
            sometimes("one is overtaken and does not know", |_, state| state.controllers.iter().all(is_leading)),
            sometimes("one is unsure", |_, state| {
                state.controllers.iter().any(|one| *one.elector.standing() == Standing::Unsure)
            }),
            sometimes("a write lost the race", |_, state| {
                state.controllers.iter().any(|one| one.request == Some(Request::Conflict))
            }),
            sometimes("a late write is still under way", |_, state| {
                state.controllers.iter().any(|one| one.late.is_some())
            }),
            sometimes("a barrier waits", |_, state| {
                state.controllers.iter().any(|one| one.office.is_some_and(|office| office.needs.is_some()))
            }),
            sometimes("a push of the past is under way", |_, state| {
                let serves = state.controllers.iter().filter(|one| one.leads(state.now)).find_map(Controller::newest);
                state.under_way.iter().any(|(_, push)| serves.is_some_and(|newest| push.epoch < newest.epoch))
            }),
            sometimes("all have the newest of a second leader", |_, state| {
                let newest = |epoch: u8| epoch > 1 && state.led[usize::from(epoch)] != state.led[1];
                let edited = state.objects[0] > 0;
                let mut applied = state.agents.iter().map(|agent| agent.applied);
                let has = |push: Option<_>| {
                    push.is_some_and(|push: super::sessions::Push| push.content == state.objects && newest(push.epoch))
                };
                edited && !state.agents.is_empty() && applied.all(has)
            }),
            sometimes("an agent is beyond its leader", |_, state| {
                let newest = state.controllers.iter().filter_map(Controller::newest);
                newest.flat_map(|push| state.agents.iter().map(move |agent| agent.reports(push))).any(|it| it.is_some())
            }),
        ]
    }
}

fn is_leading(one: &Controller) -> bool {
    matches!(one.elector.standing(), Standing::Leading { .. })
}

/// Whether a second controller serves after a first one did.
fn has_followed(state: &State) -> bool {
    state.controllers.iter().any(|one| one.newest().is_some_and(|push| push.epoch > 1 && state.led[1] != one.life))
}
