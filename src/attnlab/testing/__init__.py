"""The conformance suite for gates: what every registered gate passes, for your own gate as well.

```python
import pytest
from attnlab.testing import check_gate, gate_checks

check_gate(MyGate)                       # all checks, the first failure is raised


@pytest.mark.parametrize("check", gate_checks(), ids=str)
def test_my_gate(check):                 # one test per check
    check(MyGate)
```

Your own tools that a network with gates must survive, or be refused with attnlab's error:

```python
check_tool(Tool("my_export", lambda network, images: my_export(network)), "se")
gate_checks(tools=[*exchanging_tools(), my_tool])
```

`MyGate` is anything that builds a gate from its number of channels. On some CPUs, bfloat16 layers
end with an illegal instruction; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before torch is imported.
"""

from attnlab.testing._law import check_tool as check_tool
from attnlab.testing._suite import Check as Check
from attnlab.testing._suite import ConformanceError as ConformanceError
from attnlab.testing._suite import check_gate as check_gate
from attnlab.testing._suite import gate_checks as gate_checks
from attnlab.testing._tools import Tool as Tool
from attnlab.testing._tools import compiling_tools as compiling_tools
from attnlab.testing._tools import exchanging_tools as exchanging_tools
