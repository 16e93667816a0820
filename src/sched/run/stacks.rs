//! Descriptors and stacks: where a goroutine that begins gets them, and where they go when they are
//! free.

use super::{group, switch};
use crate::arch;
use crate::sched::prim::limits::{FREE_GS, NEWBORNS};
use crate::sched::types::g::{G, GRef, flags};
use crate::sched::types::m::{MRef, count_pinned};
use crate::sched::types::node::{Node, priority};
use crate::sched::types::p::{PRef, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::Newborn;
use crate::stack::Stack;
use core::iter;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

/// A P takes this number of goroutine ids at once.
const ID_BATCH: u64 = 64;

/// Keeps a descriptor with its stack for the next goroutine, on this P or in the node. Separates
/// the two if the stack is of an unusual size. A descriptor or stack of another node goes back
/// there. seed: N9
#[inline(always)]
pub fn keep(p: PRef, g: GRef) {
    if g.stack_of_running().kind() == p.stack_kind && !p.free_gs.is_full() {
        p.free_gs.push(g.as_non_null());
    } else {
        keep_in_node(p, g);
    }
}

#[cold]
#[inline(never)]
fn keep_in_node(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.class() != rt.stack_class || stack.home() != stack.node() as usize {
        return take_apart(p, g);
    }
    if stack.node() != p.node {
        count(&p.stats.stacks_sent_home, 1);
        return keep_one_in_node(&rt.nodes[stack.home()], g);
    }
    let node = p.of_node();
    // Counted first, as in `keep_one_in_node`.
    node.with_stack.added(FREE_GS / 2);
    node.gs_with_stack.take_back(&p.free_gs, FREE_GS / 2);
    p.free_gs.push(g.as_non_null());
}

/// Separates a descriptor from its stack, and gives each back to its own node.
#[cold]
pub fn take_apart(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.home() != p.node as usize {
        count(&p.stats.stacks_sent_home, 1);
    }
    bare(rt, g);
    // SAFETY: the stack was the ended goroutine's, and `bare` has taken it from the descriptor.
    unsafe { rt.nodes[stack.home()].stacks.put(stack) };
}

fn keep_one_in_node(node: &Node, g: GRef) {
    // Counted first, so that never more are taken than are counted.
    node.with_stack.added(1);
    node.gs_with_stack.put(g.as_non_null());
}

/// Takes the stacks from up to `most` surplus descriptors of a node, and gives their memory back to
/// the system. Returns the number of descriptors.
pub fn trim(rt: &Runtime, node: &Node, most: usize) -> usize {
    let surplus = node.with_stack.take_surplus(most);
    // Collected first: `bare` must not run with the pool's lock held.
    let mut some = Vec::with_capacity(surplus);
    let n = take_with_stack(node, surplus, |g| some.push(g));
    let of_node = some.into_iter().filter_map(|g| {
        // SAFETY: the pool holds descriptors.
        let stack = bare(rt, unsafe { GRef::from_non_null(g) })?;
        if stack.home() != node.id {
            // The stack's memory was moved to this node: the stack goes back to its home node's
            // pool, without memory.
            // SAFETY: `bare` has just taken it from the descriptor of an ended goroutine.
            unsafe { rt.nodes[stack.home()].stacks.put_cold(iter::once(stack)) };
            return None;
        }
        Some(stack)
    });
    // SAFETY: `bare` has just taken these stacks, which are the node's own, from descriptors.
    unsafe { node.stacks.put_cold(of_node) };
    n
}

/// Passes up to `most` descriptors with stacks from the node to `to`. Returns their number.
fn take_with_stack(node: &Node, most: usize, to: impl FnMut(NonNull<G>)) -> usize {
    let n = node.gs_with_stack.give_existing(most, to);
    node.with_stack.taken(n);
    n
}

/// Takes the stack from a descriptor, and puts the descriptor back into its node's pool.
fn bare(rt: &Runtime, g: GRef) -> Option<Stack> {
    let stack = g.stack.take();
    rt.nodes[g.home.get() as usize].gs.put(g.as_non_null());
    stack
}

/// Moves everything that a P keeps to its node: the P is about to end.
pub fn flush_caches(p: PRef, node: &Node) {
    while let Some(g) = p.free_gs.pop() {
        // SAFETY: the cache holds descriptors.
        keep_one_in_node(node, unsafe { GRef::from_non_null(g) });
    }
    node.newborns.take_back(&p.newborns, usize::MAX);
}

/// Takes a free descriptor with a stack of the default size from the P, or else from the node.
/// `None` if neither keeps any.
fn kept(p: PRef) -> Option<GRef> {
    // SAFETY: the cache holds descriptors.
    let cached = || p.free_gs.pop().map(|g| unsafe { GRef::from_non_null(g) });
    cached().or_else(|| {
        let node = p.of_node();
        if node.with_stack.len() == 0 {
            return None;
        }
        take_with_stack(node, FREE_GS / 4, |g| p.free_gs.push(g));
        cached()
    })
}

/// Takes or makes a free descriptor with a stack of the default size. `None` if there is no memory.
pub fn descriptor(p: PRef) -> Option<GRef> {
    if let Some(g) = kept(p) {
        return Some(g);
    }
    let node = p.of_node();
    // SAFETY: the pool holds descriptors.
    let g = unsafe { GRef::from_non_null(node.gs.get()?) };
    g.home.set(node.id as u16);
    let Some(stack) = node.stacks.get(rt().stack_class) else {
        node.gs.put(g.as_non_null());
        return None;
    };
    g.stack.set(Some(stack));
    Some(g)
}

/// Gives the newborn this descriptor and its stack, and makes a context that can be switched to.
///
/// # Safety
/// As for [`begin_as`].
#[inline(always)]
pub unsafe fn begin_on(p: PRef, newborn: NonNull<Newborn>, g: GRef) {
    // SAFETY: the caller owns the record.
    unsafe { begin_as(p, newborn, g) };
    g.fiber.begin_anew();
    // SAFETY: the stack is the goroutine's and nothing is on it.
    g.context
        .store(unsafe { arch::prepare(g.stack_of_running().top(), p.rt().fp) }, Ordering::Relaxed);
}

/// Gives an unborn goroutine a stack, so that it can be switched to. Binds a pinned goroutine to
/// this thread. `None` if there is no memory.
pub fn equip(m: MRef, g: GRef) -> Option<()> {
    let class = g.stack_class.get().unwrap_or(rt().stack_class);
    let p = m.p();
    // A goroutine that ends may leave its stack with its descriptor. Take such a stack first: else
    // each goroutine would take a new stack, and leave another there.
    let kept =
        if class == rt().stack_class { kept(p).and_then(|kept| bare(rt(), kept)) } else { None };
    let stack = kept.or_else(|| p.of_node().stacks.get(class))?;
    g.stack.set(Some(stack));
    g.fiber.begin_anew();
    // SAFETY: the stack is the goroutine's and nothing is on it.
    g.context.store(unsafe { arch::prepare(stack.top(), rt().fp) }, Ordering::Relaxed);
    g.set_flag(flags::UNBORN, false);
    g.set_flag(flags::FOREIGN, usize::from(g.home.get()) != stack.home());
    if g.has(flags::PINNED) {
        count_pinned(m, 1);
        group::begun(g);
        g.set_flag(flags::BOUND, true);
        g.bound_m.set(m.as_ptr());
    }
    Some(())
}

/// Makes the newborn a goroutine; its record is free again.
///
/// # Safety
/// The caller has taken the newborn out of a queue.
#[inline(always)]
pub unsafe fn begin_as(p: PRef, newborn: NonNull<Newborn>, g: GRef) {
    // SAFETY: the record came out of a queue, so the caller owns it.
    let n = unsafe { newborn.as_ref() };
    g.f.set(n.f.replace(None));
    g.arg.set(n.arg.get());
    g.pc.set(n.pc.get());
    g.creator.set(n.creator.get());
    g.flags.set(0);
    g.priority.set(priority::NORMAL);
    g.data.store(ptr::null_mut(), Ordering::Relaxed);
    g.id.store(next_id(p), Ordering::Relaxed);
    g.trace.reset();
    switch::assign(p, g);
    if p.newborns.is_full() {
        p.of_node().newborns.take_back(&p.newborns, NEWBORNS / 2);
    }
    p.newborns.push(newborn);
}

/// Takes the next goroutine id. Ids are unique and count from 1.
#[inline(always)]
pub fn next_id(p: PRef) -> u64 {
    let (mut next, mut end) = p.ids.get();
    if next == end {
        next = rt().take_ids(ID_BATCH);
        end = next + ID_BATCH;
    }
    p.ids.set((next + 1, end));
    next
}

/// Takes a free newborn record. `None` if there is no memory.
#[inline(always)]
pub fn newborn(p: PRef) -> Option<NonNull<Newborn>> {
    if p.newborns.is_empty() {
        refill_newborns(p);
    }
    p.newborns.pop()
}

#[cold]
#[inline(never)]
fn refill_newborns(p: PRef) {
    let to = |n| p.newborns.push(n);
    if !take_newborns(rt(), p.node as usize, NEWBORNS / 2, to) {
        p.of_node().newborns.refill(&p.newborns, NEWBORNS / 2);
    }
}

/// Takes a free newborn record for a plain thread, which spawns into the queue of this node. `None`
/// if there is no memory.
pub fn newborn_from_outside(rt: &Runtime, node: usize) -> Option<NonNull<Newborn>> {
    let mut taken = None;
    take_newborns(rt, node, 1, |n| taken = Some(n));
    taken.or_else(|| rt.nodes[node].newborns.get())
}

/// Takes up to `most` free records from the node, or else from the nearest node that has some. A
/// record is free on the node where its goroutine has begun: if nodes used only their own records,
/// a node that spawns for others would need new memory for each goroutine. Returns false if there
/// are none.
fn take_newborns(
    rt: &Runtime,
    node: usize,
    most: usize,
    mut to: impl FnMut(NonNull<Newborn>),
) -> bool {
    rt.nodes_from(node).any(|n| n.newborns.give_existing(most, &mut to) > 0)
}
