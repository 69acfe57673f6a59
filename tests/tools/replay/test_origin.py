"""The first tensor that is not finite, in functions whose answer is known."""

import jax
import jax.numpy as jnp

from tools.replay.origin import find_origin

X = jnp.array([1.0, 2.0, 3.0])


def test_a_finite_computation_has_none():
    assert find_origin(lambda x: jnp.exp(x).sum(), X) is None


def test_the_operation_and_its_line_are_named_and_not_what_comes_of_it():
    def function(x):
        y = x * 2
        z = jnp.log(y - 4)  # of -2, 0 and 2
        return jnp.sum(z * 0 + y)

    origin = find_origin(function, X)
    assert origin.operation == "log" and origin.nonfinite == 2
    assert origin.code == "z = jnp.log(y - 4)  # of -2, 0 and 2"
    assert "tests/tools/replay/test_origin.py:" in origin.where
    assert not origin.gradient and origin.layer is None


def test_a_gradient_is_told_from_an_activation():
    def loss(x):
        return 1e30 * jnp.sum(x * 1e30)  # of 1e-30 a finite one, its slope is not

    small = 1e-30 * X
    assert find_origin(loss, small) is None
    origin = find_origin(jax.grad(loss), small)
    assert origin.gradient and origin.operation == "mul"


def test_loops_are_gone_through_and_come_out_as_they_would():
    def function(x):
        def body(carry, y):
            return carry + y, carry * y

        carry, ys = jax.lax.scan(body, 0.0, x, reverse=True)
        return jnp.concatenate([ys, carry[None]])

    seen = []

    def checked(x):
        out = function(x)
        jax.debug.callback(lambda y: seen.append(y.tolist()), out)
        return out

    assert find_origin(checked, X) is None
    assert seen == [function(X).tolist()]


def test_a_mask_of_minus_infinity_is_meant_so():
    def function(x):
        scores = jnp.where(x > 1, x, -jnp.inf)
        return jax.nn.softmax(scores)

    assert find_origin(function, X) is None


def test_nor_is_one_behind_a_door_that_is_not_looked_into_an_operations_fault():
    def scores(x):
        return jax.lax.cond(x[0] > 0, lambda x: jnp.where(x > 1, x, -jnp.inf), abs, x)

    assert scores(X)[0] == -jnp.inf and jnp.isfinite(X).all()
    assert find_origin(lambda x: jax.nn.softmax(scores(x)), X) is None
    # What is infinite of these operands alone is its fault all the same.
    origin = find_origin(lambda x: jax.lax.cond(x[1] > 0, jnp.log, abs, x), X - 1)
    assert origin.operation == "cond" and origin.nonfinite == 1


def test_what_is_wrong_before_anything_is_done_is_no_operations_fault():
    assert find_origin(lambda x: x + 1, X.at[0].set(jnp.nan)) is None
