"""The quadratic program of GEM, over as many variables as there are past tasks."""

import numpy as np
import scipy.optimize


def dual_weights(
    gram: np.ndarray, products: np.ndarray, margin: float, ridge: float, solver: str
) -> np.ndarray:
    """v that minimises v' (G'G + ridge I) v / 2 + (G'g)' v subject to v >= margin.

    g + G v is then, for margin 0 and ridge 0, the point nearest to g that no past gradient (column
    of G) points against: the dual of GEM's quadratic program (equation 11 there).

    Args:
        gram: G'G, float [k, k].
        products: G'g, float [k].
        margin: Lower bound of v.
        ridge: Added to the diagonal of G'G.
        solver: "nnls" or "quadprog".

    Returns:
        float64 [k].

    Raises:
        ValueError, RuntimeError or numpy.linalg.LinAlgError: The program is not finite, its past
            gradients are 0, or it is too ill-conditioned for the solver.
    """
    gram = np.asarray_chkfinite(gram)
    matrix = (gram + gram.T).astype(np.float64) / 2 + ridge * np.eye(len(gram))
    products = products.astype(np.float64)
    if solver == "quadprog":
        import quadprog

        bounds = np.full(len(gram), margin)
        return quadprog.solve_qp(matrix, -products, np.eye(len(gram)), bounds)[0]
    # With v = u + margin and matrix = A'A it is the least |A u - b|^2 over u >= 0. The eigenvalues
    # that are 0 but for rounding are left out, so that equal past gradients have a solution too.
    values, vectors = np.linalg.eigh(matrix)
    kept = values > max(values[-1], 0.0) * len(gram) * np.finfo(gram.dtype).eps
    if not kept.any():
        raise np.linalg.LinAlgError("no past gradient differs from 0")
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    slope = products + matrix @ np.full(len(gram), margin)
    target = -(vectors.T @ slope) / roots
    solution, _ = scipy.optimize.nnls(roots[:, None] * vectors.T, target, maxiter=100 * len(gram))
    return solution + margin


def projection(
    gram: np.ndarray,
    products: np.ndarray,
    known: np.ndarray,
    margin: float,
    ridge: float,
    solver: str,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights of the past gradients in GEM's step, all 0 where none is violated.

    Args:
        gram: Inner products of the past gradients, float [tasks, tasks].
        products: Their inner products with the stream gradient, float [tasks].
        known: bool [tasks], the tasks that have a past gradient.
        margin: As for `dual_weights`.
        ridge: As for `dual_weights`.
        solver: As for `dual_weights`.

    Returns:
        The weights, [tasks] in the dtype of `gram`, and two flags in that dtype: whether a past
        gradient was violated, and whether the program had no solution, so that the weights are 0.
    """
    weights = np.zeros_like(products)
    if not (products[known] < 0).any():
        return weights, np.array([0, 0], gram.dtype)
    try:
        dual = dual_weights(gram[np.ix_(known, known)], products[known], margin, ridge, solver)
        weights[known] = np.asarray_chkfinite(dual, gram.dtype)
    except (ValueError, RuntimeError, np.linalg.LinAlgError):
        return weights, np.array([1, 1], gram.dtype)
    return weights, np.array([1, 0], gram.dtype)
