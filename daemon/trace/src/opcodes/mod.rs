//! Instructions by family: one table line each, handlers in the family's file.

mod build;
mod calls;
mod control;
mod except;
mod frame;
mod import;
mod matching;
mod names;
pub mod page;
mod stack;

use crate::state::tracer::Tracer;
use crate::value::flow::{Flow, stop};
use crate::value::frame::{Control, PyFrame};
use flambeau_bytecode::Op;
use flambeau_ir::guard::Collection;
use flambeau_ir::reason::ReasonCode;

/// Instructions that no trace goes through.
macro_rules! untraced {
    () => {
        Op::DeleteName(_)
            | Op::ImportStar
            | Op::CheckEgMatch
            | Op::PrepReraiseStar
            | Op::GetAwaitable(_)
            | Op::GetAiter
            | Op::GetAnext
            | Op::EndAsyncFor
            | Op::AsyncGenWrap
            | Op::BeforeAsyncWith
            | Op::SetupAnnotations
            | Op::StopIterationError
            | Op::Intrinsic { .. }
            | Op::PrintExpr
            | Op::ToBool
    };
}

/// Whether traces go through an instruction.
pub(crate) fn is_traced(op: Op) -> bool {
    !matches!(op, untraced!())
}

/// Runs one instruction.
// A table.
pub(crate) fn step(t: &mut Tracer<'_>, f: &mut PyFrame, op: Op) -> Flow<Control> {
    match op {
        Op::PopTop => stack::pop_top(f),
        Op::PushNull => stack::push_null(f),
        Op::Swap(n) => stack::swap(f, n),
        Op::Copy(n) => stack::copy(f, n),
        Op::LoadConst(i) => stack::load_const(t, f, i),
        Op::LoadFast(i) => stack::load_fast(t, f, i),
        Op::StoreFast(i) => stack::store_fast(f, i),
        Op::DeleteFast(i) => stack::delete_fast(t, f, i),
        Op::LoadFastAndClear(i) => stack::load_fast_and_clear(t, f, i),
        Op::MakeCell(i) => stack::make_cell(t, f, i),
        Op::LoadClosure(i) => stack::load_closure(t, f, i),
        Op::LoadDeref(i) => stack::load_deref(t, f, i),
        Op::StoreDeref(i) => stack::store_deref(t, f, i),
        Op::DeleteDeref(i) => stack::delete_deref(t, f, i),
        Op::LoadClassDeref(i) => names::load_class_deref(t, f, i),
        Op::LoadLocals => stack::push_null(f),
        Op::LoadFromDictOrDeref(i) => names::of_class_body(f).and_then(|()| names::load_class_deref(t, f, i)),
        Op::LoadFromDictOrGlobals(i) => names::of_class_body(f).and_then(|()| names::load_name(t, f, i)),
        Op::CopyFreeVars(n) => stack::copy_free_vars(t, f, n),

        Op::Unary(op) => stack::unary(t, f, op),
        Op::Binary { kind, inplace } => stack::binary(t, f, kind, inplace),
        Op::Compare(op) => stack::compare(t, f, op),
        Op::Is { invert } => stack::is(t, f, invert),
        Op::Contains { invert } => stack::contains(t, f, invert),
        Op::BinarySubscr => stack::subscript(t, f),
        Op::BinarySlice => build::slice(f, 2).and_then(|_| stack::subscript(t, f)),
        Op::StoreSlice => build::slice(f, 2).and_then(|_| stack::store_subscript(t, f)),
        Op::StoreSubscr => stack::store_subscript(t, f),
        Op::DeleteSubscr => stack::delete_subscript(t, f),
        Op::GetLen => stack::get_len(t, f),

        Op::LoadGlobal { name, push_null } => names::load_global(t, f, name, push_null),
        Op::StoreGlobal(i) => names::store_global(t, f, i),
        Op::DeleteGlobal(i) => names::delete_global(t, f, i),
        Op::LoadName(i) => names::load_name(t, f, i),
        Op::StoreName(i) => names::store_name(t, f, i),
        Op::LoadAttr { name, method } => names::load_attr(t, f, name, method),
        Op::LoadSuperAttr { name, method, explicit } => names::load_super_attr(t, f, name, method, explicit),
        Op::StoreAttr(i) => names::store_attr(t, f, i),
        Op::DeleteAttr(i) => names::delete_attr(t, f, i),

        Op::BuildTuple(n) => build::tuple(f, n),
        Op::BuildList(n) => build::list(t, f, n),
        Op::BuildSet(n) => build::set(t, f, n),
        Op::BuildMap(n) => build::map(t, f, n),
        Op::BuildConstKeyMap(n) => build::const_key_map(t, f, n),
        Op::BuildString(n) => build::string(t, f, n),
        Op::BuildSlice(n) => build::slice(f, n),
        Op::ListAppend(n) => build::list_append(t, f, n),
        Op::SetAdd(n) => build::set_add(t, f, n),
        Op::MapAdd(n) => build::map_add(t, f, n),
        Op::ListExtend(n) => build::list_extend(t, f, n),
        Op::SetUpdate(n) => build::set_update(t, f, n),
        Op::DictUpdate(n) => build::dict_update(t, f, n, false),
        Op::DictMerge { dict, .. } => build::dict_update(t, f, dict, true),
        Op::ListToTuple => build::list_to_tuple(t, f),
        Op::UnpackSequence(n) => build::unpack(t, f, n as usize, None),
        Op::UnpackEx { before, after } => build::unpack(t, f, before as usize, Some(after as usize)),
        Op::FormatValue { conversion, spec } => build::format_value(t, f, conversion, spec),

        Op::ConvertValue(conversion) => build::convert_value(t, f, conversion),

        Op::MakeFunction(parts) => calls::make_function(t, f, parts),
        Op::SetFunctionAttribute(part) => calls::set_function_attribute(t, f, part),
        Op::KwNames(i) => calls::kw_names(f, i),
        Op::Call { argc } => calls::call(t, f, argc),
        Op::CallKw { argc } => calls::call_kw(t, f, argc),
        Op::CallEx { kwargs } => calls::call_ex(t, f, kwargs),

        Op::Jump(target) => Ok(Control::Jump(target)),
        Op::PopJumpIf { cond, target } => control::pop_jump_if(t, f, cond, target),
        Op::JumpIfOrPop { cond, target } => control::jump_if_or_pop(t, f, cond, target),
        Op::GetIter => control::get_iter(t, f),
        Op::ForIter(target) => control::for_iter(t, f, target),
        Op::EndFor => stack::pop_top(f).and_then(|_| stack::pop_top(f)),
        Op::ReturnValue => Ok(Control::Return(f.pop()?)),
        Op::ReturnGenerator => control::return_generator(f),
        Op::YieldValue => Ok(Control::Yield(f.pop()?)),
        Op::Send(target) => control::send(t, f, target),
        Op::EndSend => stack::swap(f, 2).and_then(|_| stack::pop_top(f)),
        Op::CleanupThrow => control::cleanup_throw(t, f),
        Op::GetYieldFromIter => control::get_yield_from_iter(t, f),

        Op::RaiseVarargs(n) => except::raise(t, f, n),
        Op::Reraise(_) => except::reraise(f),
        Op::PushExcInfo => except::push_exc_info(t, f),
        Op::PopExcept => except::pop_except(t, f),
        Op::CheckExcMatch => except::check_match(t, f),
        Op::LoadAssertionError => except::load_assertion_error(t, f),
        Op::LoadBuildClass => names::load_build_class(t, f),
        Op::BeforeWith => except::before_with(t, f),
        Op::WithExceptStart => except::with_except_start(t, f),

        Op::MatchSequence => matching::collection(t, f, Collection::Sequence),
        Op::MatchMapping => matching::collection(t, f, Collection::Mapping),
        Op::MatchKeys => matching::keys(t, f),
        Op::MatchClass(n) => matching::class(t, f, n),

        Op::ImportName(i) => import::name(t, f, i),
        Op::ImportFrom(i) => import::from(t, f, i),

        untraced!() => stop(ReasonCode::UnsupportedOpcode, format!("{op:?}")),
    }
}
