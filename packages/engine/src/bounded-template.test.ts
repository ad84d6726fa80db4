import { expect, test } from "vitest";
import { compileTemplate, RENDER_LIMIT_MS } from "./bounded-template.ts";

const render = (source: string, values = {}) => compileTemplate(source).render(values);

test("a template renders as in Jinja, its first line and its ranges included", () => {
  expect(render("\n  {{ a }}", { a: 1 })).toBe("\n  1");
  expect(render("{% if a %}\nx{% endif %}", { a: true })).toBe("x");
  expect(render("{{ range(3) | join(',') }} {{ range(2, 8, 3) | join(',') }}")).toBe("0,1,2 2,5");
  expect(render("{{ range(3, 0, -1) | join(',') }}{{ range(5, 2) | join(',') }}")).toBe("3,2,1");
  expect(render("{% macro m(n) %}{{ range(n) | length }}{% endmacro %}{{ m(100000) }}")).toBe("100000");
});

test("a list that no memory holds is refused", () => {
  for (const text of [
    "range(10 ** 15)",
    "range(1000000000000)",
    "range(0, -1000000000000, -1)",
    "range(1, 2, 0)",
  ]) {
    expect(() => render(`{% for i in ${text} %}x{% endfor %}`), text).toThrow();
  }
  expect(() => render("{% for i in range(100001) %}x{% endfor %}")).toThrow("it may have 100000");
});

test("a macro that calls itself is refused", () => {
  expect(() => render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")).toThrow();
});

test("a template that never ends is ended, and the next one renders", { timeout: 30_000 }, () => {
  const loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  const startedMs = performance.now();
  expect(() => render(loop)).toThrow(`it did not end within ${RENDER_LIMIT_MS / 1000} s`);
  expect(performance.now() - startedMs).toBeLessThan(3 * RENDER_LIMIT_MS);
  expect(render("{{ a }}", { a: 1 })).toBe("1");
});
