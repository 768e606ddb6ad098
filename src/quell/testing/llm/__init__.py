"""A local server that speaks the wire formats of LLM APIs: what a client of them does is tested without them.

    with ModelServer() as server:
        server.will(Thinks("Let me look.") + Calls(("shell", {"command": "ls"})), Says("Done."))
        client = openai.OpenAI(base_url=server.url, api_key="any")

It answers OpenAI's chat completions and responses and Anthropic's messages, in streams or whole, and refuses what they
would refuse, in their words. `python -m quell.testing.llm` runs one.
"""

from .replies import Calls, Fails, Malformed, Reply, Says, Thinks
from .requests import ModelRequest
from .server import ModelServer

__all__ = ["Calls", "Fails", "Malformed", "ModelRequest", "ModelServer", "Reply", "Says", "Thinks"]
