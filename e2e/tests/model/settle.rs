//! What becomes of a state when nothing goes wrong any more.

use super::world::{Action, CONTROLLERS, Planted, State};

/// Longer than a Lease, and a round more for each thing that may still be in the way.
const TICKS: u8 = 10;

/// Whether in the end one leads, and all agents have the newest of every object.
pub fn settles(state: &State, planted: Planted) -> bool {
    let mut state = state.clone();
    for _ in 0..TICKS {
        for who in 0..CONTROLLERS {
            if state.controllers[who].late.is_some() {
                state.happen(Action::ServeLate(who), planted);
            }
            while state.controllers[who].is_busy(state.now) {
                state.happen(Action::Round(who), planted);
            }
        }
        while !state.under_way.is_empty() {
            state.happen(Action::Arrive(0), planted);
        }
        (0..CONTROLLERS).for_each(|who| serve(&mut state, who, planted));
        state.happen(Action::Pass, planted);
    }
    state.now -= 1;
    let leaders = state.controllers.iter().filter(|one| one.leads(state.now)).count();
    let newest = |content| content == state.objects;
    leaders == 1 && state.agents.iter().all(|agent| agent.applied.is_some_and(|push| newest(push.content)))
}

fn serve(state: &mut State, who: usize, planted: Planted) {
    if state.controllers[who].office.is_none() {
        return;
    }
    for object in 0..state.objects.len() {
        while state.controllers[who].view[object] < state.objects[object] {
            state.happen(Action::Watch(who, object), planted);
        }
    }
    for agent in 0..state.agents.len() {
        let Some(push) = state.controllers[who].newest() else { return };
        if state.agents[agent].reports(push).is_some() {
            state.happen(Action::Report(who, agent), planted);
        } else if state.agents[agent].applied != Some(push) {
            state.happen(Action::Push(who, agent), planted);
        }
    }
}
