//! Frames with one thing wrong each.

use super::*;
use crate::code::CodeHash;
use crate::frame::FrameId;
use crate::guard::{ClassRef, Guard};
use crate::plan::PlanKernel;
use crate::tensor::Device;

/// `f(x)` with one kernel: a new tensor, a view of it, a launch.
fn sound() -> CompiledFrame {
    let mut sources = SourceTable::default();
    let x = sources.intern(None, Step::Arg(0));
    let tensor = TensorGuard {
        class: ClassRef { module: "torch".into(), qualname: "Tensor".into() },
        dtype: DType::F32,
        device: Device::CPU,
        sizes: vec![4.into()],
        strides: vec![1.into()],
        requires_grad: false,
        is_leaf_or_view: None,
        dispatch_keys: 0,
    };
    let (sizes, strides) = (vec![Dim::Const(4)], vec![Dim::Const(1)]);
    let (dtype, device) = (DType::F32, Device::CPU);
    let view = PlanStep::View {
        reg: Reg(2),
        base: Reg(1),
        sizes: vec![2.into()],
        strides: strides.clone(),
        offset: 2.into(),
        dtype,
    };
    let plan = Plan {
        regs: 3,
        inputs: vec![x],
        objects: vec![],
        steps: vec![
            PlanStep::Alloc { reg: Reg(1), dtype, device, sizes, strides },
            PlanStep::Launch { kernel: 0, buffers: vec![Reg(0), Reg(1)], scalars: vec![] },
            view,
            PlanStep::Free(Reg(1)),
        ],
        outputs: vec![Reg(2)],
        backend: "cpu".into(),
        device,
        kernels: vec![PlanKernel { name: "k".into(), artifact: [0; 32], buffers: 2, scalars: 0 }],
        commit: 4,
        restores: false,
    };
    CompiledFrame {
        frame: FrameId { code: CodeHash([0; 32]), path: vec![] },
        guards: GuardProgram { sources, guards: vec![Guard { source: x, kind: GuardKind::Tensor(tensor) }] },
        symbols: vec![],
        indices: vec![],
        body: Body::Native(plan),
        exit: Exit::returning(vec![Build::Output(0)], vec![], BuildId(0)),
        graph_text: String::new(),
        fallback: None,
    }
}

fn damaged(change: impl FnOnce(&mut CompiledFrame)) -> String {
    let mut bad = sound();
    change(&mut bad);
    frame(&bad, 1).expect_err("nothing was noticed").0
}

fn in_plan(change: impl FnOnce(&mut Plan)) -> String {
    damaged(|frame| {
        if let Body::Native(plan) = &mut frame.body {
            change(plan);
        }
    })
}

#[test]
fn a_sound_frame_passes() {
    assert_eq!(frame(&sound(), 1), Ok(()));
    assert!(frame(&sound(), 0).is_err(), "it has no argument slot to read");
}

#[test]
fn registers_kernels_and_steps_exist() {
    in_plan(|plan| plan.regs = 2);
    in_plan(|plan| plan.regs = u32::MAX);
    in_plan(|plan| plan.kernels.clear());
    in_plan(|plan| plan.kernels[0].buffers = 3);
    in_plan(|plan| plan.kernels[0].scalars = 1);
    in_plan(|plan| plan.outputs = vec![Reg(1)]);
    in_plan(|plan| plan.outputs = vec![Reg(9)]);
    in_plan(|plan| plan.steps.push(PlanStep::Bump(Reg(1))));
    in_plan(|plan| plan.commit = 5);
    in_plan(|plan| plan.steps.swap(0, 1));
    in_plan(|plan| plan.steps.push(PlanStep::Free(Reg(1))));
    in_plan(|plan| plan.steps.push(PlanStep::Free(Reg(0))));
    in_plan(|plan| plan.inputs = vec![SourceId(1)]);
    in_plan(|plan| plan.objects = vec![SourceId(1)]);
    let call =
        |arg| PlanStep::Call { op: "aten::sin".into(), overload: "default".into(), args: vec![arg], results: vec![] };
    in_plan(|plan| plan.steps.insert(0, call(PlanArg::Object(0))));
}

#[test]
fn views_stay_within_what_they_are_of() {
    in_plan(|plan| {
        if let PlanStep::View { offset, .. } = &mut plan.steps[2] {
            *offset = 3.into();
        }
    });
    in_plan(|plan| {
        if let PlanStep::View { strides, .. } = &mut plan.steps[2] {
            *strides = vec![(1 << 40).into()];
        }
    });
    in_plan(|plan| {
        if let PlanStep::Alloc { sizes, .. } = &mut plan.steps[0] {
            *sizes = vec![3.into()];
        }
    });
    in_plan(|plan| {
        if let PlanStep::Alloc { strides, .. } = &mut plan.steps[0] {
            strides.clear();
        }
    });
}

#[test]
fn inputs_are_guarded_to_be_tensors() {
    damaged(|frame| frame.guards.guards.clear());
    damaged(|frame| frame.guards.guards[0].source = SourceId(7));
}

#[test]
fn symbols_are_defined() {
    in_plan(|plan| {
        if let PlanStep::Alloc { sizes, .. } = &mut plan.steps[0] {
            *sizes = vec![Dim::sym(SymId(3))];
        }
    });
    damaged(|frame| frame.exit.builds[0] = Build::Dim(Dim::sym(SymId(0))));
    damaged(|frame| {
        let id = SymId(u32::MAX);
        frame.symbols = vec![Symbol { id, source: SourceId(0), of: SymbolOf::Int, hint: 0, min: 0, max: 9 }];
    });
}

#[test]
fn parts_come_before_wholes() {
    damaged(|frame| frame.exit.builds = vec![Build::List(vec![BuildId(0)])]);
    damaged(|frame| frame.exit.builds = vec![Build::Output(1)]);
    damaged(|frame| frame.exit.builds = vec![Build::Source(SourceId(3))]);
    damaged(|frame| frame.exit.builds.push(Build::Iter(BuildId(0), u64::MAX)));
    damaged(|frame| frame.exit.end = End::Return(BuildId(1)));
    damaged(|frame| frame.exit.effects.push(Effect::SetCell(BuildId(4), None)));
}

#[test]
fn code_is_what_its_hash_says() {
    let code = Code {
        hash: CodeHash([0; 32]),
        python: (3, 11),
        name: "f".into(),
        qualname: "f".into(),
        filename: "f.py".into(),
        firstlineno: 1,
        argcount: 0,
        posonlyargcount: 0,
        kwonlyargcount: 0,
        stacksize: 1,
        flags: 3,
        bytecode: vec![151, 0],
        consts: vec![],
        names: vec![],
        localsplusnames: vec![],
        localspluskinds: vec![],
        linetable: vec![],
        exceptiontable: vec![],
    };
    let code = Code { hash: code.content_hash(), ..code };
    let with = |code: Code| {
        let mut frame = sound();
        frame.exit.builds.push(Build::Const(Const::Code(code.into())));
        self::frame(&frame, 1)
    };
    assert_eq!(with(code.clone()), Ok(()));
    assert!(with(Code { bytecode: vec![151, 0, 83, 0], ..code.clone() }).is_err());
    let odd = Code { localspluskinds: vec![Code::FREE], ..code };
    assert!(with(Code { hash: odd.content_hash(), ..odd }).is_err());
}
