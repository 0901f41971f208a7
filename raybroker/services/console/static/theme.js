// Before the page is drawn: the theme that was chosen, "" for that of the system.
try {
  const chosen = localStorage.getItem("raybroker.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* Storage may be switched off. */ }
