// Every formula of a page, as arithmatex leaves it: \(...\) in a span or \[...\] in a div.
for (const element of document.querySelectorAll(".arithmatex")) {
  const display = element.tagName === "DIV";
  katex.render(element.textContent.trim().slice(2, -2), element, { displayMode: display });
}
