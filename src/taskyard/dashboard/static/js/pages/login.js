/** The way in, where the server has users. */
import { askSession, post } from "../api.js";
import { html, useState } from "../lib.js";
import { go, route } from "../route.js";
import { Field, fieldError, useForm } from "../ui/form.js";
import { ThemeSwitch } from "../ui/theme.js";

export function Login() {
  const [byToken, setByToken] = useState(false);
  const form = useForm({ user: "", password: "", token: "" });
  const send = form.submit(async (values) => {
    if (byToken && !values.token) throw fieldError("token", "Give the token.");
    await post("session", byToken ? { token: values.token } : { user: values.user, password: values.password });
    await askSession();
    if (route.value.path[0] === "login") go("#/");
  });
  return html`<main class="login" id="main">
    <form class="panel" onSubmit=${send} aria-label="Log in">
      <p class="brand"><img src="assets/icon.svg" alt="" width="28" height="28" /> Taskyard</p>
      <h1 tabindex="-1">Log in</h1>
      <div class="fields-one">
        ${byToken
          ? html`<${Field} key="token" label="Token" name="token" type="password" form=${form} required autofocus />`
          : html`<${Field} key="user" label="User" name="user" form=${form} required autocomplete="username" autofocus />
              <${Field} key="password" label="Password" name="password" type="password" form=${form} required autocomplete="current-password" />`}
      </div>
      ${form.wrong.form && html`<p class="wrong" role="alert">${form.wrong.form}</p>`}
      <button type="submit" class="primary" disabled=${form.busy}>Log in</button>
      <div class="login-foot">
        <button type="button" class="link-button" onClick=${() => setByToken(!byToken)}>${byToken ? "Use a password" : "Use a token"}</button>
        <${ThemeSwitch} />
      </div>
    </form>
  </main>`;
}
