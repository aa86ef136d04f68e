//! Calendar fields of timestamps and units of durations.

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::time::{NANOS, duration_seconds, zone};
use crate::value::Value;

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match &call.args[0] {
        Value::Duration(nanos) if call.args.len() == 1 => duration_field(context, call, *nanos),
        Value::Timestamp(timestamp) => {
            let offset = match call.args.get(1) {
                None => 0,
                Some(Value::String(name)) => {
                    zone::offset(name, timestamp.seconds, context.time_zones).map_err(EvalError::new)?
                }
                Some(_) => return Err(call.no_overload()),
            };
            let c = timestamp.calendar(offset);
            Ok(Value::Int(match call.function {
                Function::GetFullYear => c.year,
                Function::GetMonth => c.month - 1,
                Function::GetDate => c.day,
                Function::GetDayOfMonth => c.day - 1,
                Function::GetDayOfYear => c.year_day,
                Function::GetDayOfWeek => c.week_day,
                Function::GetHours => c.hour,
                Function::GetMinutes => c.minute,
                Function::GetSeconds => c.second,
                _ => i64::from(timestamp.nanos / 1_000_000),
            }))
        }
        _ => Err(call.no_overload()),
    }
}

fn duration_field<'a>(context: &Context<'a>, call: &Invocation<'_, 'a>, nanos: i64) -> Evaluated<'a> {
    Ok(Value::Int(match call.function {
        Function::GetHours => (duration_seconds(nanos) / 3600.0) as i64,
        Function::GetMinutes => (duration_seconds(nanos) / 60.0) as i64,
        Function::GetSeconds => nanos / NANOS,
        // The specification has the part below a second, Kubernetes the whole duration.
        Function::GetMilliseconds if context.is_language() => nanos / 1_000_000 % 1_000,
        Function::GetMilliseconds => nanos / 1_000_000,
        _ => return Err(call.no_overload()),
    }))
}
