"""Files that runs write, made without training."""


def write_steps(folder, lambdas):
    """A steps.csv of windows of 10 steps with these means of Lambda; alpha_H is 0.1 everywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{10 * (i + 1)},{value},0.1" for i, value in enumerate(lambdas)]
    text = "\r\n".join(["step,lambda_mean,alpha_h_mean", *lines, ""])
    (folder / "steps.csv").write_text(text.replace("nan", ""), newline="")
